// A function for each condition, and the table of rules.
#include "worker_client/tools/doctor_alerts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace agg {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// `{a="b",c="d"}` from its first brace on; leaves what follows in `*text`.
// False: it is damaged.
bool ReadLabels(absl::string_view* text,
                std::map<std::string, std::string>* labels) {
  text->remove_prefix(1);
  while (!text->empty() && text->front() != '}') {
    if (text->front() == ',') text->remove_prefix(1);
    const size_t equals = text->find("=\"");
    if (equals == absl::string_view::npos) return false;
    const std::string name(text->substr(0, equals));
    text->remove_prefix(equals + 2);
    std::string value;
    while (!text->empty() && text->front() != '"') {
      char c = text->front();
      if (c == '\\' && text->size() > 1) {
        text->remove_prefix(1);
        c = text->front() == 'n' ? '\n' : text->front();
      }
      value.push_back(c);
      text->remove_prefix(1);
    }
    if (text->empty()) return false;
    text->remove_prefix(1);
    (*labels)[name] = std::move(value);
  }
  if (text->empty()) return false;
  text->remove_prefix(1);
  return true;
}

bool ReadSample(absl::string_view line, Sample* sample) {
  const size_t end = line.find_first_of("{ ");
  if (end == 0 || end == absl::string_view::npos) return false;
  sample->name = std::string(line.substr(0, end));
  line.remove_prefix(end);
  if (line.front() == '{' && !ReadLabels(&line, &sample->labels)) return false;
  // A time may follow.
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, ' ', absl::SkipEmpty());
  return !words.empty() && absl::SimpleAtod(words[0], &sample->value);
}

}  // namespace

std::vector<Sample> ParseMetrics(absl::string_view text) {
  std::vector<Sample> samples;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    Sample sample;
    if (line.empty() || line[0] == '#' || !ReadSample(line, &sample)) continue;
    samples.push_back(std::move(sample));
  }
  return samples;
}

namespace {

bool Matches(const Sample& sample, absl::string_view name,
             absl::string_view label) {
  if (sample.name != name) return false;
  if (label.empty()) return true;
  const std::pair<std::string, std::string> wanted =
      absl::StrSplit(label, absl::MaxSplits('=', 1));
  const auto found = sample.labels.find(wanted.first);
  return found != sample.labels.end() && found->second == wanted.second;
}

}  // namespace

double ValueOf(const ShardMetrics& shard, absl::string_view name,
               absl::string_view label) {
  for (const Sample& sample : shard.samples) {
    if (Matches(sample, name, label)) return sample.value;
  }
  return kNan;
}

double SumOf(const ShardMetrics& shard, absl::string_view name,
             absl::string_view label) {
  double sum = 0.0;
  for (const Sample& sample : shard.samples) {
    if (Matches(sample, name, label) && !std::isnan(sample.value)) {
      sum += sample.value;
    }
  }
  return sum;
}

namespace {

// Comparisons with NaN are false here as they are in Prometheus.

double Job(const AlertFacts& facts, absl::string_view name,
           absl::string_view label = "") {
  return facts.shards.empty() ? kNan : ValueOf(facts.shards[0], name, label);
}

double Unix(absl::Time time) {
  return absl::ToDoubleSeconds(time - absl::UnixEpoch());
}

// Seconds since a moment that a sample of shard 0 has.
double SinceOfJob(const AlertFacts& facts, absl::string_view name) {
  return facts.shards.empty() ? kNan
                              : Unix(facts.shards[0].now) - Job(facts, name);
}

bool InPhase(const AlertFacts& facts, absl::string_view phases, double one) {
  for (absl::string_view phase : absl::StrSplit(phases, '|')) {
    if (Job(facts, "aggserver_job_phase", absl::StrCat("phase=", phase)) ==
        one) {
      return true;
    }
  }
  return false;
}

std::string Long(double seconds) {
  return absl::FormatDuration(absl::Trunc(
      absl::Seconds(seconds),
      std::abs(seconds) < 60 ? absl::Milliseconds(100) : absl::Seconds(1)));
}

std::string LabelOf(const Sample& sample, const std::string& label) {
  const auto found = sample.labels.find(label);
  return found == sample.labels.end() ? "" : found->second;
}

std::string Percent(double share) {
  return absl::StrFormat("%.0f%%", 100 * share);
}

// Reasons of each shard, of which `why` says "" if it has none.
template <typename Why>
Reasons OfEachShard(const AlertFacts& facts, const Why& why) {
  Reasons reasons;
  for (size_t s = 0; s < facts.shards.size(); ++s) {
    const std::string text = why(facts.shards[s]);
    if (!text.empty()) {
      reasons.push_back(absl::StrCat("shard ", s, ": ", text));
    }
  }
  return reasons;
}

Reasons If(bool fires, const std::string& why) {
  return fires ? Reasons{why} : Reasons();
}

// histogram_quantile of Prometheus: linear within the bucket.
double Quantile(const ShardMetrics& shard, double q, absl::string_view name) {
  std::vector<std::pair<double, double>> buckets;  // bound, cumulative count
  for (const Sample& sample : shard.samples) {
    const auto bound = sample.labels.find("le");
    double le = 0.0;
    if (sample.name == name && bound != sample.labels.end() &&
        absl::SimpleAtod(bound->second, &le)) {
      buckets.emplace_back(le, sample.value);
    }
  }
  std::sort(buckets.begin(), buckets.end());
  if (buckets.size() < 2 || !(buckets.back().second > 0.0)) return kNan;
  const double rank = q * buckets.back().second;
  size_t b = 0;
  while (b + 1 < buckets.size() && buckets[b].second < rank) ++b;
  if (b + 1 == buckets.size()) return buckets[b - 1].first;
  const double low = b == 0 ? 0.0 : buckets[b - 1].first;
  const double before = b == 0 ? 0.0 : buckets[b - 1].second;
  return low + (buckets[b].first - low) * (rank - before) /
                   (buckets[b].second - before);
}

double StallSeconds(const AlertFacts& facts) {
  const double q = RecordRules()[0].numbers[0];
  const Numbers& n = RecordRules()[1].numbers;
  const double tens =
      n[0] * Quantile(facts.shards[0], q, "aggserver_round_seconds_bucket");
  if (tens > n[1]) return tens;
  return std::isnan(tens) ? n[6] : n[4];  // Not a number: none has ended yet.
}

// The recorded rules aggserver:job_goes_on and aggserver:job_ended, the latter
// with aggserver:shard_stopped.
bool GoesOn(const AlertFacts& facts) {
  return InPhase(facts, "unseeded|open|closing|finished",
                 RecordRules()[2].numbers[0]);
}

bool HasEnded(const AlertFacts& facts) {
  const double one = RecordRules()[3].numbers[0];
  return InPhase(facts, "finished", one) ||
         Job(facts, "aggserver_stopping") == RecordRules()[4].numbers[0];
}

Reasons ShardDown(const AlertFacts& facts, const Numbers&) {
  if (GoesOn(facts) || HasEnded(facts)) return {};
  return OfEachShard(facts, [](const ShardMetrics& shard) {
    return shard.answers ? "" : "it does not answer";
  });
}

// Fewer of them answer than the job has.
Reasons TooFew(const AlertFacts& facts) {
  const auto there =
      std::count_if(facts.shards.begin(), facts.shards.end(),
                    [](const ShardMetrics& shard) { return shard.answers; });
  const double shards = Job(facts, "aggserver_shards");
  return If(there < shards,
            absl::StrCat("only ", there, " of ", shards, " shards answer"));
}

Reasons ShardMissing(const AlertFacts& facts, const Numbers&) {
  return GoesOn(facts) || HasEnded(facts) ? Reasons() : TooFew(facts);
}

Reasons ShardUnread(const AlertFacts& facts, const Numbers&) {
  return !GoesOn(facts) || HasEnded(facts) ? Reasons() : TooFew(facts);
}

Reasons Unseeded(const AlertFacts& facts, const Numbers& n) {
  const double joined = Job(facts, "aggserver_workers_joined");
  const double expected = Job(facts, "aggserver_workers_expected");
  return If(
      InPhase(facts, "unseeded", n[0]) && joined >= expected && expected > n[1],
      "all workers are in, and none has seeded it");
}

Reasons JobLost(const AlertFacts& facts, const Numbers& n) {
  return If(InPhase(facts, "shard_lost", n[0]), "a shard is lost");
}

Reasons Recovering(const AlertFacts& facts, const Numbers& n) {
  return If(Job(facts, "aggserver_recovering") == n[0],
            "the job is between two epochs");
}

Reasons NotReplicated(const AlertFacts& facts, const Numbers& n) {
  return If(Job(facts, "aggserver_replication_configured") == n[0] &&
                Job(facts, "aggserver_replicated") != n[1] &&
                !InPhase(facts, "waiting_for_shards|unseeded|finished|draining",
                         n[2]),
            "some parts have one copy only");
}

Reasons CheckpointOld(const AlertFacts& facts, const Numbers& n) {
  if (!InPhase(facts, "open|closing", n[12])) return {};
  const double interval = Job(facts, "aggserver_checkpoint_interval_seconds");
  const double rounds = Job(facts, "aggserver_checkpoint_every_rounds");
  const double age = Job(facts, "aggserver_checkpoint_age_seconds");
  const double version = Job(facts, "aggserver_job_version");
  const double behind = version - Job(facts, "aggserver_checkpoint_version");
  if (age > n[0] * interval && interval > n[1] && behind > 0) {
    return {absl::StrCat("the newest one is ", Long(age), " old")};
  }
  if (age > n[2] && behind > n[3] * rounds && rounds > n[4]) {
    return {absl::StrCat("the newest one is ", behind, " rounds old")};
  }
  const double up = SinceOfJob(facts, "aggserver_start_time_seconds");
  if (up > n[5] * interval && interval > n[6] && !(age >= n[7])) {
    return {absl::StrCat("none in ", Long(up), " since shard 0 has started")};
  }
  const double applied =
      Job(facts, "aggserver_rounds_total", "outcome=applied");
  return If(
      up > n[8] && applied > n[9] * rounds && rounds > n[10] && !(age >= n[11]),
      absl::StrCat("none in ", applied, " rounds"));
}

Reasons JobFailed(const AlertFacts& facts, const Numbers& n) {
  return If(Job(facts, "aggserver_job_failed") == n[0],
            "the job has finished by giving up");
}

// One look does not see whether the job was away, which the rule asks first.
Reasons RoundStalled(const AlertFacts& facts, const Numbers& n) {
  if (!InPhase(facts, "open|closing", n[1])) return {};
  const double stall = StallSeconds(facts);
  const double since =
      SinceOfJob(facts, "aggserver_last_round_timestamp_seconds");
  const double wait = Job(facts, "aggserver_longest_wait_seconds");
  if (since > stall) {
    return {absl::StrCat("no round for ", Long(since), "; a stall is ",
                         Long(stall))};
  }
  return If(wait > stall,
            absl::StrCat("the open round has waited for ", Long(wait)));
}

Reasons WorkersMissing(const AlertFacts& facts, const Numbers& n) {
  const double joined = Job(facts, "aggserver_workers_joined");
  const double expected = Job(facts, "aggserver_workers_expected");
  return If(joined < expected && InPhase(facts, "unseeded|open|closing", n[0]),
            absl::StrCat(joined, " of ", expected, " workers are in"));
}

Reasons WorkerStalled(const AlertFacts& facts, const Numbers&) {
  if (facts.shards.empty()) return {};
  const double stall = StallSeconds(facts);
  Reasons reasons;
  for (const Sample& sample : facts.shards[0].samples) {
    if (sample.name == "aggserver_worker_waited_for_seconds" &&
        sample.value > stall) {
      reasons.push_back(absl::StrCat("worker ", LabelOf(sample, "worker"),
                                     " is waited for since ",
                                     Long(sample.value)));
    }
  }
  return reasons;
}

Reasons NotFinite(const AlertFacts& facts, const Numbers& n) {
  const double rounds = Job(facts, "aggserver_not_finite_rounds");
  return If(rounds > n[0], absl::StrCat("parameters are not finite since ",
                                        rounds, " rounds"));
}

Reasons MemoryNearLimit(const AlertFacts& facts, const Numbers& n) {
  return OfEachShard(facts, [&](const ShardMetrics& shard) -> std::string {
    const double limit = ValueOf(shard, "aggserver_memory_limit_bytes");
    const double resident =
        ValueOf(shard, "aggserver_memory_resident_bytes") / limit;
    if (!(limit > n[0] && resident > n[1])) return "";
    return absl::StrCat("the process has ", Percent(resident),
                        " of its container's memory");
  });
}

Reasons MemoryNearBudget(const AlertFacts& facts, const Numbers& n) {
  const double missing = Job(facts, "aggserver_workers_missing");
  if (!(missing > n[1])) return {};
  return OfEachShard(facts, [&](const ShardMetrics& shard) -> std::string {
    const double planned = ValueOf(shard, "aggserver_memory_planned_bytes") /
                           ValueOf(shard, "aggserver_memory_budget_bytes");
    if (!(planned > n[0])) return "";
    return absl::StrCat("the plan is ", Percent(planned),
                        " of its memory budget, and ", missing,
                        " workers are to come");
  });
}

Reasons DeviceMemoryNearBudget(const AlertFacts& facts, const Numbers& n) {
  return OfEachShard(facts, [&](const ShardMetrics& shard) -> std::string {
    const double budget =
        ValueOf(shard, "aggserver_device_memory_budget_bytes");
    const double planned =
        ValueOf(shard, "aggserver_device_memory_planned_bytes") / budget;
    const double total = ValueOf(shard, "aggserver_device_memory_total_bytes");
    const double used =
        ValueOf(shard, "aggserver_device_memory_used_bytes") / total;
    if (budget > n[0] && planned > n[1]) {
      return absl::StrCat("the plan is ", Percent(planned),
                          " of its budget of the device");
    }
    if (!(total > n[2] && used > n[3])) return "";
    return absl::StrCat(Percent(used), " of the device's memory is in use");
  });
}

Reasons MemoryAbovePlan(const AlertFacts& facts, const Numbers& n) {
  return OfEachShard(facts, [&](const ShardMetrics& shard) -> std::string {
    const double resident = ValueOf(shard, "aggserver_memory_resident_bytes");
    const double planned = ValueOf(shard, "aggserver_memory_planned_bytes");
    const double budget = ValueOf(shard, "aggserver_memory_budget_bytes");
    if (!(resident > n[0] * planned + n[1]) && !(resident > n[2] * budget)) {
      return "";
    }
    return absl::StrFormat("the process has %.0f MiB, %.0f MiB are planned",
                           resident / (1 << 20), planned / (1 << 20));
  });
}

Reasons SharedMemoryFallback(const AlertFacts& facts, const Numbers& n) {
  return OfEachShard(facts, [&](const ShardMetrics& shard) -> std::string {
    const double buffers =
        SumOf(shard, "aggserver_shared_memory_fallbacks_total");
    if (!(buffers > n[0])) return "";
    return absl::StrCat(buffers, " buffers are private memory");
  });
}

// `least`: seconds.
Reasons CertificatesThatEnd(const AlertFacts& facts, double least) {
  Reasons reasons;
  for (size_t s = 0; s < facts.shards.size(); ++s) {
    for (const Sample& sample : facts.shards[s].samples) {
      if (sample.name != "aggserver_certificate_expiry_timestamp_seconds") {
        continue;
      }
      const double left = sample.value - Unix(facts.shards[s].now);
      if (!(left < least)) continue;
      reasons.push_back(absl::StrCat(
          "shard ", s, ": ", LabelOf(sample, "file"),
          left < 0 ? " has ended" : absl::StrCat(" ends in ", Long(left))));
    }
  }
  return reasons;
}

Reasons CertificateExpires(const AlertFacts& facts, const Numbers& n) {
  return CertificatesThatEnd(facts, n[0] * n[1] * n[2]);
}

Reasons CertificateExpiresSoon(const AlertFacts& facts, const Numbers& n) {
  return CertificatesThatEnd(facts, n[0] * n[1]);
}

}  // namespace

const std::vector<RecordRule>& RecordRules() {
  static const auto* const kRules = new std::vector<RecordRule>{
      {"aggserver:round_seconds:median", {0.5}},
      {"aggserver:stall_seconds", {10, 60, 0, 0, 60, 0, 600}},
      {"aggserver:job_goes_on", {1}},
      {"aggserver:job_ended", {1}},
      {"aggserver:shard_stopped", {1}},
  };
  return *kRules;
}

namespace {

using Condition = Reasons (*)(const AlertFacts& facts, const Numbers& numbers);

AlertRule Critical(const char* name, const char* hold, Numbers numbers,
                   Condition fires) {
  return {name, "critical", hold, std::move(numbers), fires, nullptr};
}

AlertRule Warning(const char* name, const char* hold, Numbers numbers,
                  Condition fires) {
  return {name, "warning", hold, std::move(numbers), fires, nullptr};
}

// A rule that asks for a rate, of this counter.
AlertRule Rate(const char* severity, const char* name, const char* hold,
               Numbers numbers, const char* counter) {
  return {name, severity, hold, std::move(numbers), nullptr, counter};
}

// A rule that one look cannot judge: it needs a history, or more than the job.
AlertRule Other(const char* severity, const char* name, const char* hold,
                Numbers numbers) {
  return Rate(severity, name, hold, std::move(numbers), nullptr);
}

std::vector<AlertRule> MakeRules() {
  return {
      Other("none", "AggWatchdog", "0m", {1}),
      Other("critical", "AggJobAbsent", "5m", {}),
      Other("critical", "AggJobDown", "1m", {0}),
      Critical("AggShardDown", "1m", {0}, ShardDown),
      Critical("AggShardMissing", "5m", {}, ShardMissing),
      Warning("AggShardUnread", "5m", {}, ShardUnread),
      Other("critical", "AggShardFlapping", "0m", {3}),
      Other("critical", "AggRecoversOften", "0m", {4}),
      Critical("AggJobLost", "1m", {1}, JobLost),
      Critical("AggRecovering", "2m", {1}, Recovering),
      Critical("AggUnseeded", "5m", {1, 0}, Unseeded),
      Other("critical", "AggBegunAnew", "0m", {}),
      Rate("warning", "AggRewound", "0m", {}, "aggserver_rewinds_total"),
      Warning("AggNotReplicated", "2m", {1, 1, 1}, NotReplicated),
      Rate("warning", "AggCheckpointFailed", "0m", {0},
           "aggserver_checkpoint_failed_total"),
      Warning("AggCheckpointOld", "1m",
              {3, 0, 60, 3, 0, 3, 0, 0, 60, 3, 0, 0, 1}, CheckpointOld),
      Other("critical", "AggCheckpointHung", "5m", {1, 0, 0, 15, 0}),
      Critical("AggJobFailed", "0m", {1}, JobFailed),
      Critical("AggRoundStalled", "30s", {1, 1}, RoundStalled),
      Warning("AggWorkersMissing", "3m", {1}, WorkersMissing),
      Other("warning", "AggStraggler", "5m", {0.5, 0.25, 0.25}),
      Warning("AggWorkerStalled", "30s", {}, WorkerStalled),
      Rate("warning", "AggNonFiniteGradients", "0m", {0},
           "aggserver_excluded_rows_total"),
      Rate("warning", "AggOutlierWorker", "5m", {0.5},
           "aggserver_outlier_rows_total"),
      Critical("AggParametersNotFinite", "1m", {0}, NotFinite),
      Rate("critical", "AggRoundsSkipped", "1m", {0.1, 3},
           "aggserver_rounds_total{outcome=skipped}"),
      Other("info", "AggWorkersWasted", "30m", {0.05}),
      Other("info", "AggOrthogonalityFloor", "30m", {1.1, 1}),
      Rate("warning", "AggFallbackRate", "10m", {0.05},
           "aggserver_fallbacks_total"),
      Critical("AggMemoryNearLimit", "1m", {0, 0.95}, MemoryNearLimit),
      Warning("AggMemoryNearBudget", "1m", {0.9, 0}, MemoryNearBudget),
      Warning("AggDeviceMemoryNearBudget", "1m", {0, 0.9, 0, 0.95},
              DeviceMemoryNearBudget),
      Rate("warning", "AggBackendErrors", "0m", {0},
           "aggserver_backend_errors_total"),
      Rate("warning", "AggRoundLogErrors", "0m", {0},
           "aggserver_round_log_errors_total"),
      Warning("AggMemoryAbovePlan", "10m", {1.5, 1073741824, 1.1},
              MemoryAbovePlan),
      Warning("AggSharedMemoryFallback", "0m", {0}, SharedMemoryFallback),
      Rate("warning", "AggChecksumErrors", "0m", {0},
           "aggserver_crc_errors_total"),
      Rate("warning", "AggDenied", "0m", {5}, "aggserver_denied_total"),
      Rate("warning", "AggAuditErrors", "0m", {0},
           "aggserver_audit_errors_total"),
      Warning("AggCertificateExpires", "10m", {14, 24, 3600},
              CertificateExpires),
      Critical("AggCertificateExpiresSoon", "1m", {24, 3600},
               CertificateExpiresSoon),
  };
}

}  // namespace

const std::vector<AlertRule>& AlertRules() {
  static const auto* const kRules = new std::vector<AlertRule>(MakeRules());
  return *kRules;
}

namespace {

// What has happened since the processes' start that the rule asks about.
Reasons Counted(const AlertFacts& facts, absl::string_view counter) {
  std::pair<std::string, std::string> named =
      absl::StrSplit(counter, absl::MaxSplits('{', 1));
  if (!named.second.empty()) named.second.pop_back();  // the brace
  return OfEachShard(facts, [&](const ShardMetrics& shard) -> std::string {
    const double count = SumOf(shard, named.first, named.second);
    if (!(count > 0)) return "";
    const double start = ValueOf(shard, "aggserver_start_time_seconds");
    return absl::StrCat(
        counter, " is ", count, " since its start",
        std::isnan(start)
            ? ""
            : absl::StrCat(", ", Long(Unix(shard.now) - start), " ago"));
  });
}

}  // namespace

std::vector<Alert> JudgeAlerts(const AlertFacts& facts) {
  std::vector<Alert> alerts;
  for (const AlertRule& rule : AlertRules()) {
    const bool perhaps = rule.fires == nullptr;
    if (perhaps && rule.counter == nullptr) continue;
    const Reasons reasons = perhaps ? Counted(facts, rule.counter)
                                    : rule.fires(facts, rule.numbers);
    for (const std::string& why : reasons) {
      alerts.push_back({&rule, why, perhaps});
    }
  }
  return alerts;
}

}  // namespace agg
