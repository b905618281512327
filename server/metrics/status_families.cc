// Names, labels and help texts of what is sampled at each scrape. Plain numbers
// are rows of tables; what is left over has labels, or a case of its own.
#include "server/metrics/status_families.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/job_phase.h"
#include "server/metrics/family_builder.h"
#include "server/metrics/round_state.h"
#include "server/round/round_report.h"
#include "server/round/worker_transports.h"
#include "server/round_log/round_log_status.h"

namespace agg {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file),
                     std::istreambuf_iterator<char>());
}

// The number in field `index` (from 0) of words; NaN if there is none.
double Field(absl::string_view text, size_t index) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  double value = kUnknown;
  if (index >= words.size() || !absl::SimpleAtod(words[index], &value)) {
    return kUnknown;
  }
  return value;
}

double CpuSeconds() {
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return kUnknown;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double StartTimeSeconds() {
  // proc(5): starttime is field 22 of stat, in ticks after the boot. Field 2,
  // the program's name, is in parentheses and may hold spaces.
  const std::string stat = ReadFile("/proc/self/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return kUnknown;
  const double ticks = Field(absl::string_view(stat).substr(name_end + 1), 19);
  const std::string kernel = ReadFile("/proc/stat");
  const size_t boot = kernel.find("\nbtime ");
  if (boot == std::string::npos) return kUnknown;
  return Field(absl::string_view(kernel).substr(boot), 1) +
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// The entries of /proc/self/fd, less the one that this look itself opens.
double OpenFiles() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return kUnknown;
  int num_files = 0;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') ++num_files;
  }
  closedir(folder);
  return static_cast<double>(num_files - 1);
}

double MaxOpenFiles() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kUnknown;
  if (limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<double>::infinity();
  }
  return static_cast<double>(limit.rlim_cur);
}

}  // namespace

ProcessUsage ReadProcessUsage() {
  // It never changes, and /proc/stat is long where there are many CPUs.
  static const double start_time_seconds = StartTimeSeconds();
  ProcessUsage usage;
  const std::string memory = ReadFile("/proc/self/statm");
  const double page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
  usage.virtual_bytes = Field(memory, 0) * page_bytes;
  usage.resident_bytes = Field(memory, 1) * page_bytes;
  usage.cpu_seconds = CpuSeconds();
  usage.start_time_seconds = start_time_seconds;
  usage.open_files = OpenFiles();
  usage.max_open_files = MaxOpenFiles();
  return usage;
}

namespace {

// A worker that has left has no series until it is back: a counter that fell
// to 0 meanwhile would count twice.
template <typename ValueOf>
void AddPerWorker(const MetricsOptions& options, const JobStatus& status,
                  const ValueOf& value_of, FamilyBuilder* builder) {
  for (const WorkerState& worker : status.workers) {
    if (worker.rank < 0 || worker.rank >= options.max_workers) continue;
    builder->Add(value_of(worker), {{"worker", std::to_string(worker.rank)}});
  }
}

// Adds when workers' rows come: how long rounds may wait, and who is late as a
// habit. A series for each worker that is in, with a rank below
// options.max_workers.
void AddArrivalFamilies(const MetricsOptions& options, const JobStatus& status,
                        FamilyBuilder* builder) {
  builder->Gauge("aggserver_round_timeout_seconds",
                 "How long after its first commit a round closes at the "
                 "latest; 0: it has no such limit.",
                 absl::ToDoubleSeconds(status.round_timeout));
  builder->BeginCounter("aggserver_worker_late_rows_total",
                        "Gradients that came when their round had closed.");
  AddPerWorker(
      options, status,
      [](const WorkerState& w) { return static_cast<double>(w.late_rows); },
      builder);
  builder->BeginCounter("aggserver_worker_last_rows_total",
                        "Rounds of which this worker's gradient was the last.");
  AddPerWorker(
      options, status,
      [](const WorkerState& w) { return static_cast<double>(w.last_rows); },
      builder);
  builder->BeginGauge("aggserver_worker_lateness_seconds",
                      "Median of the last rounds: this worker's commit after "
                      "the first one.");
  AddPerWorker(
      options, status,
      [](const WorkerState& w) { return absl::ToDoubleSeconds(w.lateness); },
      builder);
}

void AddCheckpoints(const MetricsOptions& options,
                    const CheckpointStatus& status, FamilyBuilder* builder) {
  const bool none_yet = status.configured && status.made == 0;
  builder->Gauge("aggserver_checkpoint_interval_seconds",
                 "checkpoint.every_seconds; 0: not by time, or no checkpoints.",
                 options.checkpoint_every_seconds);
  builder->Gauge("aggserver_checkpoint_every_rounds",
                 "checkpoint.every_rounds; 0: not by rounds, or no "
                 "checkpoints.",
                 static_cast<double>(options.checkpoint_every_rounds));
  builder->Gauge("aggserver_checkpoint_version",
                 "Version of the newest complete checkpoint; NaN: none yet; 0 "
                 "without checkpoints.",
                 none_yet ? kUnknown : static_cast<double>(status.version));
  builder->Gauge("aggserver_checkpoint_age_seconds",
                 "Since the newest checkpoint was complete, or the job went on "
                 "from it; NaN: none yet; 0 without checkpoints.",
                 none_yet ? kUnknown : absl::ToDoubleSeconds(status.age));
  builder->Gauge("aggserver_checkpoint_writing",
                 "1 while a checkpoint is being written, else 0.",
                 status.writing ? 1.0 : 0.0);
  builder->Counter("aggserver_checkpoint_sealed_total",
                   "Checkpoints that were completed.",
                   static_cast<double>(status.num_sealed));
  builder->Counter("aggserver_checkpoint_failed_total",
                   "Checkpoints that were given up after an error.",
                   static_cast<double>(status.num_failed));
  builder->Counter("aggserver_checkpoint_skipped_total",
                   "Checkpoints that were due while one was being written.",
                   static_cast<double>(status.num_skipped));
}

// Adds the families under "Survival" of README.md: what the job would survive
// now. Those of checkpoints are 0 where none are configured: NaN says that
// there is none yet.
void AddSurvivalFamilies(const MetricsOptions& options, const JobStatus& status,
                         FamilyBuilder* builder) {
  builder->Gauge("aggserver_recovering",
                 "1 while the job is between two epochs and waits for "
                 "something, else 0.",
                 status.recovering.empty() ? 0.0 : 1.0);
  builder->Gauge("aggserver_replication_configured",
                 "1 with replication \"buddy\", else 0.",
                 options.replicated ? 1.0 : 0.0);
  builder->Gauge("aggserver_replicated",
                 "1 while each part has its two copies in memory, else 0.",
                 status.replicated ? 1.0 : 0.0);
  builder->Counter("aggserver_rewinds_total",
                   "Times that the job has gone back to a checkpoint.",
                   static_cast<double>(status.rewinds));
  builder->Gauge("aggserver_history",
                 "The epoch of the last seed or rewind; 0 before the seed.",
                 static_cast<double>(status.history));
  AddCheckpoints(options, status.checkpoint, builder);
}

// Adds how workers say that they reach the shards. All series are there from
// the start, so that a rate sees the first event.
void AddLinkFamilies(const MetricsOptions& options, const JobStatus& status,
                     FamilyBuilder* builder) {
  builder->BeginGauge("aggserver_worker_links",
                      "Pairs of a worker that is in and a shard, by how rows "
                      "and parameters travel between them.");
  double unknown = options.shards * static_cast<double>(status.workers.size());
  for (size_t i = 0; i < kTransportNames.size(); ++i) {
    double number = 0.0;
    for (const WorkerState& worker : status.workers) {
      number += worker.transports.shards[i];
    }
    builder->Add(number, {{"transport", std::string(kTransportNames[i])}});
    unknown -= number;
  }
  builder->Add(std::max(unknown, 0.0), {{"transport", "unknown"}});
}

// Adds what a shard wanted to share with workers and could not.
void AddFallbackFamilies(const ShardStatus& status, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_shared_memory_fallbacks_total",
                        "Buffers that were to be shared with workers of this "
                        "host and are private memory, by what for and why.");
  const auto add = [builder](int64_t number, const char* use,
                             const char* reason) {
    builder->Add(static_cast<double>(number),
                 {{"use", use}, {"reason", reason}});
  };
  add(status.shared_rows_refused, "rows", "refused");
  add(status.shared_rows_no_memory, "rows", "no_memory");
  add(status.shared_versions_refused, "versions", "refused");
  add(status.shared_versions_no_memory, "versions", "no_memory");
  builder->BeginCounter("aggserver_staged_buffers_total",
                        "Buffers shared with workers of this host that the "
                        "device copies by way of staging memory, since it "
                        "could not register them, by what for.");
  builder->Add(static_cast<double>(status.staged_rows), {{"use", "rows"}});
  builder->Add(static_cast<double>(status.staged_versions),
               {{"use", "versions"}});
}

void AddPhase(const std::optional<JobStatus>& status, FamilyBuilder* builder) {
  builder->BeginGauge("aggserver_job_phase",
                      "1 for the phase that the job is in, else 0.");
  for (size_t i = 0; i < kJobPhaseNames.size(); ++i) {
    const bool current =
        status.has_value() && static_cast<size_t>(status->phase) == i;
    builder->Add(current ? 1.0 : 0.0, {{"phase", kJobPhaseNames[i]}});
  }
}

void AddWorkerCounts(const MetricsOptions& options, const JobStatus& status,
                     FamilyBuilder* builder) {
  const auto count = [&](bool WorkerState::*is) {
    return static_cast<double>(
        std::count_if(status.workers.begin(), status.workers.end(),
                      [is](const WorkerState& worker) { return worker.*is; }));
  };
  builder->Gauge("aggserver_workers_expected", "Workers that were configured.",
                 options.workers);
  const double num_joined = static_cast<double>(status.workers.size());
  builder->Gauge("aggserver_workers_joined",
                 "Workers that are in now: they have a live session.",
                 num_joined);
  builder->Gauge("aggserver_workers_attending",
                 "Workers whose connection to the coordinator is open.",
                 count(&WorkerState::attending));
  builder->Gauge("aggserver_workers_committed",
                 "Workers that have committed the open round.",
                 count(&WorkerState::committed));
  builder->Gauge("aggserver_workers_missing",
                 "Expected workers that are not in: expected less joined.",
                 std::max(options.workers - num_joined, 0.0));
  builder->Gauge("aggserver_workers_waited_for",
                 "Workers that are in and have not committed the open round.",
                 static_cast<double>(status.missing_ranks.size()));
  builder->Gauge("aggserver_workers_floor",
                 "min_workers: with fewer the job follows its floor_policy.",
                 status.min_workers);
  builder->Gauge("aggserver_below_floor_seconds",
                 "Since how long fewer workers than the floor are in; 0: they "
                 "are not fewer.",
                 absl::ToDoubleSeconds(status.below_floor_for));
}

void AddWaits(const MetricsOptions& options, const JobStatus& status,
              FamilyBuilder* builder) {
  absl::Duration longest = absl::ZeroDuration();
  for (const WorkerState& worker : status.workers) {
    longest = std::max(longest, worker.waited_for);
  }
  builder->Gauge("aggserver_longest_wait_seconds",
                 "How long the open round has waited for its last worker.",
                 absl::ToDoubleSeconds(longest));
  // Ranks that are expected but not here have their series, too.
  const int32_t num_expected = std::min(options.workers, options.max_workers);
  std::vector<double> waits(
      static_cast<size_t>(std::max(num_expected, int32_t{0})), kUnknown);
  for (const WorkerState& worker : status.workers) {
    if (worker.rank < 0 || worker.rank >= options.max_workers) continue;
    const size_t rank = static_cast<size_t>(worker.rank);
    if (rank >= waits.size()) waits.resize(rank + 1, kUnknown);
    waits[rank] = absl::ToDoubleSeconds(worker.waited_for);
  }
  builder->BeginGauge("aggserver_worker_waited_for_seconds",
                      "How long the open round has waited for this worker.");
  for (size_t rank = 0; rank < waits.size(); ++rank) {
    builder->Add(waits[rank], {{"worker", std::to_string(rank)}});
  }
}

// Series for each external rule; none where there is no such rule.
void AddRuleProcesses(const JobStatus& status, FamilyBuilder* builder) {
  builder->BeginGauge("aggserver_rule_process_connected",
                      "1 while a process decides the external rule, else 0.");
  for (const RuleProcessStatus& process : status.rule_processes) {
    builder->Add(process.connected ? 1.0 : 0.0, {{"name", process.name}});
  }
  builder->BeginCounter("aggserver_rule_answers_total",
                        "Rounds that an external rule was asked about, by what "
                        "came of it.");
  for (const RuleProcessStatus& process : status.rule_processes) {
    const auto add = [&](const char* answer, uint64_t number) {
      builder->Add(static_cast<double>(number),
                   {{"name", process.name}, {"answer", answer}});
    };
    add("taken", process.answers);
    add("missing", process.missing_answers);
    add("late", process.late_answers);
  }
}

// A status names all reasons, also those with 0, so that a rate sees the first
// one.
void AddEndedWorkers(const JobStatus& status, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_workers_ended_total",
                        "Sessions of workers that are over, by why.");
  for (const EndedWorkers& ended : status.ended_workers) {
    builder->Add(static_cast<double>(ended.number), {{"reason", ended.reason}});
  }
}

// By the shard that did not answer; `shard` is the one that tells.
void AddPhaseTimeouts(const JobStatus& status, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_phase_timeouts_total",
                        "Epochs that ended because a shard did not answer a "
                        "phase within phase_timeout_seconds.");
  for (size_t i = 0; i < status.phase_timeouts.size(); ++i) {
    builder->Add(static_cast<double>(status.phase_timeouts[i]),
                 {{"late_shard", std::to_string(i)}});
  }
}

enum class Kind { kGauge, kCounter };

struct ShardNumber {
  Kind kind;
  const char* name;
  const char* help;
  int64_t ShardStatus::*value;
};

constexpr ShardNumber kShardNumbers[] = {
    {Kind::kGauge, "aggserver_slices", "Slices of tensors on this shard.",
     &ShardStatus::num_slices},
    {Kind::kGauge, "aggserver_elements", "Parameters on this shard.",
     &ShardStatus::num_elements},
    {Kind::kGauge, "aggserver_memory_planned_bytes",
     "Memory that this shard planned at the last manifest.",
     &ShardStatus::memory_planned_bytes},
    {Kind::kGauge, "aggserver_device_memory_planned_bytes",
     "As aggserver_memory_planned_bytes, on the backend's device; 0 without "
     "one.",
     &ShardStatus::device_memory_planned_bytes},
    {Kind::kGauge, "aggserver_device_memory_budget_bytes",
     "Device memory that the plan may take; 0 without a device.",
     &ShardStatus::device_memory_budget_bytes},
    {Kind::kGauge, "aggserver_device_memory_used_bytes",
     "Device memory in use, by any process; 0 without a device.",
     &ShardStatus::device_memory_used_bytes},
    {Kind::kGauge, "aggserver_device_memory_total_bytes",
     "Memory of the device; 0 without one.",
     &ShardStatus::device_memory_total_bytes},
    {Kind::kCounter, "aggserver_push_bytes_total",
     "Gradient bytes that landed on this shard.", &ShardStatus::push_bytes},
    {Kind::kCounter, "aggserver_push_in_place_bytes_total",
     "Of these, written by workers in shared memory.",
     &ShardStatus::push_bytes_in_place},
    {Kind::kCounter, "aggserver_push_on_device_bytes_total",
     "Of these, written by workers in the row on the device.",
     &ShardStatus::push_bytes_on_device},
    {Kind::kCounter, "aggserver_duplicate_bytes_total",
     "Gradient bytes dropped: duplicates and closed rounds.",
     &ShardStatus::duplicate_bytes},
    {Kind::kCounter, "aggserver_pull_bytes_total",
     "Parameter bytes handed to the transport.", &ShardStatus::pull_bytes},
    {Kind::kCounter, "aggserver_pull_in_place_bytes_total",
     "Of these, offered to be read in shared memory.",
     &ShardStatus::pull_bytes_in_place},
    {Kind::kCounter, "aggserver_pull_on_device_bytes_total",
     "Of these, offered to be read on the device.",
     &ShardStatus::pull_bytes_on_device},
    {Kind::kCounter, "aggserver_crc_errors_total",
     "Slices whose checksum did not match.", &ShardStatus::crc_errors},
    {Kind::kCounter, "aggserver_revoked_snapshots_total",
     "Snapshots whose pulls were cancelled to free a buffer.",
     &ShardStatus::revoked_snapshots},
    {Kind::kCounter, "aggserver_overtaken_pulls_total",
     "Pulls that were written over, since nobody took their bytes.",
     &ShardStatus::overtaken_pulls},
    {Kind::kCounter, "aggserver_backend_errors_total",
     "Calls of the compute backend that failed.", &ShardStatus::backend_errors},
};

void AddShardNumbers(const ShardStatus& status, FamilyBuilder* builder) {
  for (const ShardNumber& number : kShardNumbers) {
    const double value = static_cast<double>(status.*number.value);
    if (number.kind == Kind::kCounter) {
      builder->Counter(number.name, number.help, value);
    } else {
      builder->Gauge(number.name, number.help, value);
    }
  }
}

void AddSliceGrams(const ShardStatus& status, FamilyBuilder* builder) {
  builder->BeginCounter("aggserver_slice_grams_total",
                        "Slices whose Gram was computed while others arrived "
                        "(early), or when their round closed (close).");
  builder->Add(static_cast<double>(status.early_grams), {{"when", "early"}});
  builder->Add(static_cast<double>(status.grams_at_close), {{"when", "close"}});
}

// The names that Prometheus' client libraries give every process, so that
// dashboards and alerts for any process work for this one.
void AddStandardProcessFamilies(const ProcessUsage& usage,
                                FamilyBuilder* builder) {
  builder->Counter("process_cpu_seconds_total",
                   "Total user and system CPU time spent in seconds.",
                   usage.cpu_seconds);
  builder->Gauge("process_resident_memory_bytes",
                 "Resident memory size in bytes.", usage.resident_bytes);
  builder->Gauge("process_virtual_memory_bytes",
                 "Virtual memory size in bytes.", usage.virtual_bytes);
  builder->Gauge("process_open_fds", "Number of open file descriptors.",
                 usage.open_files);
  builder->Gauge("process_max_fds", "Maximum number of open file descriptors.",
                 usage.max_open_files);
  builder->Gauge("process_start_time_seconds",
                 "Start time of the process since unix epoch in seconds.",
                 usage.start_time_seconds);
}

}  // namespace

void AddJobFamilies(const MetricsOptions& options,
                    const std::optional<JobStatus>& status,
                    FamilyBuilder* builder) {
  AddPhase(status, builder);
  const JobStatus job = status.value_or(JobStatus());
  builder->Gauge(
      "aggserver_round", "The open round.",
      status.has_value() ? static_cast<double>(job.round) : kUnknown);
  builder->Gauge("aggserver_job_version",
                 "Published parameter version; NaN before the seed.",
                 job.seeded ? static_cast<double>(job.version) : kUnknown);
  AddWorkerCounts(options, job, builder);
  AddWaits(options, job, builder);
  AddArrivalFamilies(options, job, builder);
  AddLinkFamilies(options, job, builder);
  AddEndedWorkers(job, builder);
  AddRuleProcesses(job, builder);
  builder->Gauge("aggserver_job_failed",
                 "1 once the job has finished by giving up, else 0.",
                 job.failed ? 1.0 : 0.0);
  AddPhaseTimeouts(job, builder);
  builder->Gauge("aggserver_consecutive_skipped_rounds",
                 "Skipped rounds since the last applied one.",
                 static_cast<double>(job.consecutive_skipped_rounds));
  builder->Gauge("aggserver_not_finite_rounds",
                 "Rounds since an update left parameters that are not finite, "
                 "that one included; 0 while they are finite.",
                 static_cast<double>(job.not_finite_rounds));
  builder->Gauge("aggserver_differing_ranks",
                 "Workers that step the parameters themselves and had others "
                 "than the most of them in the last rounds.",
                 static_cast<double>(job.differing_ranks.size()));
  AddSurvivalFamilies(options, job, builder);
}

void AddRoundLogFamilies(const std::optional<RoundLogStatus>& status,
                         FamilyBuilder* builder) {
  const RoundLogStatus log = status.value_or(RoundLogStatus());
  builder->Counter("aggserver_round_log_records_total",
                   "Rounds that were written to the round log.",
                   static_cast<double>(log.records));
  builder->Counter("aggserver_round_log_errors_total",
                   "Rounds that could not be written to the round log.",
                   static_cast<double>(log.errors));
}

void AddShardFamilies(const ShardStatus& status, FamilyBuilder* builder) {
  builder->Info("aggserver_backend_info", "Compute backend; always 1.",
                {{"backend", status.backend}});
  builder->Gauge("aggserver_attached",
                 "1 while the coordinator has this shard in its epoch.",
                 status.attached ? 1.0 : 0.0);
  builder->Gauge("aggserver_epoch",
                 "The epoch: a new one means a restart of the job's servers.",
                 static_cast<double>(status.epoch));
  builder->Gauge(
      "aggserver_version",
      "Version that this shard serves; NaN before the seed.",
      status.published ? static_cast<double>(status.version) : kUnknown);
  builder->Gauge("aggserver_memory_budget_bytes",
                 "Memory that the plan may take; +Inf is unlimited.",
                 status.memory_budget_bytes > 0
                     ? static_cast<double>(status.memory_budget_bytes)
                     : std::numeric_limits<double>::infinity());
  AddShardNumbers(status, builder);
  AddSliceGrams(status, builder);
  AddFallbackFamilies(status, builder);
}

void AddProcessFamilies(const ProcessUsage& usage, const ProcessState& state,
                        FamilyBuilder* builder) {
  builder->Gauge("aggserver_stopping",
                 "1 from the moment that the process was told to stop, in good "
                 "order, else 0.",
                 state.stopping ? 1.0 : 0.0);
  builder->Gauge("aggserver_memory_limit_bytes",
                 "Memory limit of the process's control group; 0: none.",
                 static_cast<double>(state.memory_limit_bytes));
  builder->Counter("aggserver_audit_errors_total",
                   "Lines of the audit that are missing from its file.",
                   static_cast<double>(state.audit_errors));
  builder->Gauge("aggserver_memory_resident_bytes",
                 "Physical memory that this process has.",
                 usage.resident_bytes);
  builder->Counter("aggserver_cpu_seconds_total",
                   "CPU time of this process, user and system.",
                   usage.cpu_seconds);
  builder->Gauge("aggserver_start_time_seconds",
                 "Unix time at which this process started.",
                 usage.start_time_seconds);
  AddStandardProcessFamilies(usage, builder);
}

}  // namespace agg
