// The rows of each group of fields, in the order of the errors. All errors are
// collected, so that a configuration is corrected in one go. A row's default
// may depend on fields that were read before it.
#include "server/config/options.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/address.h"
#include "server/base/field_error.h"
#include "server/config/combine_config.h"
#include "server/config/config_fields.h"
#include "server/config/config_text.h"
#include "server/config/optimizer_config.h"

namespace agg {
namespace {

// With less, the log would begin a new file every few rounds.
constexpr int64_t kMinRoundLogBytes = 65536;

// The limit of MakeShardPlan (proto/shard_plan.h).
constexpr int kMaxShards = 1024;
constexpr int64_t kMinEarlyElements = 65536;  // wakes a thread for no less

bool IsJob(const std::string& job) {
  return job.size() <= 64 && std::all_of(job.begin(), job.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
         });
}

void ReadShards(const v1::JobConfig& config, ConfigFields* fields,
                ServerOptions* options, FieldErrors* errors) {
  if (config.shards_size() > kMaxShards) {
    errors->Add(FieldError("number of shards",
                           absl::StrCat(config.shards_size()),
                           absl::StrCat("1 to ", kMaxShards)));
    return;
  }
  std::set<std::string> seen;
  for (int i = 0; i < config.shards_size(); ++i) {
    const std::string path = absl::StrCat("shards[", i, "]");
    errors->Add(CheckAddress(path, config.shards(i)));
    if (!seen.insert(config.shards(i)).second) {
      errors->Add(FieldError(path, Quoted(config.shards(i)),
                             "an address that no other shard has"));
    }
  }
  options->shards.assign(config.shards().begin(), config.shards().end());
  fields->Choice("unix_socket", {{"auto", true}, {"off", false}},
                 &options->unix_socket);
  std::string shared = "auto";
  fields->Choice<std::string>("shared_memory",
                              {{"auto", "auto"}, {"on", "on"}, {"off", "off"}},
                              &shared);
}

void ReadWorkers(const v1::JobConfig& config, ConfigFields* fields,
                 CoordinatorOptions* job) {
  // A job that did not ask for a floor goes on with whoever is left.
  job->floor_policy =
      config.min_workers() == 0 ? FloorPolicy::kWarn : FloorPolicy::kWait;
  job->workers = 0;  // required
  job->min_workers = config.workers();
  job->max_workers = config.workers();
  const std::string workers = absl::StrCat("workers (", config.workers(), ")");
  const auto in_range = Between(1, kMaxWorkers);
  const bool known =
      fields->Number("workers", &job->workers, in_range,
                     absl::StrCat("1 to ", kMaxWorkers, " (required)"));
  // The others are measured by it, and have it as their default.
  fields->Number("min_workers", &job->min_workers,
                 known ? Between(1, job->workers) : nullptr,
                 absl::StrCat("1 to ", workers));
  fields->Number("max_workers", &job->max_workers,
                 known ? Between(job->workers, kMaxWorkers) : nullptr,
                 absl::StrCat(workers, " to ", kMaxWorkers));
  fields->Choice("floor_policy",
                 {{"wait", FloorPolicy::kWait},
                  {"warn", FloorPolicy::kWarn},
                  {"fail", FloorPolicy::kFail}},
                 &job->floor_policy);
  fields->Choice("on_divergence", {{"warn", false}, {"fail", true}},
                 &job->fail_on_divergence);
  const bool fails = config.floor_policy() == "fail";
  if (fails) job->floor_timeout = absl::Seconds(300);
  fields->Seconds("floor_timeout_seconds", &job->floor_timeout,
                  fails ? Positive() : Between(0, 0),
                  "finite, > 0 with floor_policy \"fail\"; else 0");
}

void ReadTimes(ConfigFields* fields, CoordinatorOptions* job) {
  fields->Seconds("start_timeout_seconds", &job->start_timeout, AtLeast(0),
                  "finite, >= 0 (0: never start with fewer than `workers`)");
  fields->Seconds("lease_seconds", &job->lease, AtLeast(0.1), "finite, >= 0.1");
  fields->Seconds("reconnect_grace_seconds", &job->reconnect_grace,
                  AtLeast(0.1), "finite, >= 0.1");
  fields->Seconds("round_timeout_seconds", &job->round_timeout, AtLeast(0),
                  "finite, >= 0 (0: off)");
  fields->Number("round_timeout_mad", &job->round_timeout_mad, AtLeast(0),
                 "finite, >= 0 (0: off)");
  fields->Seconds("straggler_warning_seconds", &job->straggler_warning,
                  Positive(), "finite, > 0");
  fields->Seconds("start_warning_seconds", &job->start_warning, Positive(),
                  "finite, > 0");
  fields->Seconds("phase_timeout_seconds", &job->phase_timeout, Positive(),
                  "finite, > 0");
  fields->Number("max_rounds", &job->max_rounds);
  fields->Number("max_skipped_rounds", &job->max_skipped_rounds);
}

void ReadCompute(const v1::JobConfig& config, ConfigFields* fields,
                 ServerOptions* options) {
  BackendOptions* const backend = &options->backend_options;
  fields->Choice("cuda_gram",
                 {{"by_device", GramArithmetic::kByDevice},
                  {"double", GramArithmetic::kDouble},
                  {"double_float", GramArithmetic::kDoubleFloat}},
                 &backend->cuda_gram);
  const bool cuda = config.backend() == "cuda";
  const NumberCheck only_cuda = cuda ? AtLeast(0) : Between(0, 0);
  fields->Number("device", &backend->cuda_device, only_cuda,
                 "0, or up to the number of devices - 1 with backend \"cuda\"");
  fields->Choice<std::string>("backend", {{"cpu", "cpu"}, {"cuda", "cuda"}},
                              &options->backend);
  fields->Number("compute_threads", &backend->num_threads, Between(0, 1024),
                 "0 to 1024 (0: one per CPU)");
  MemoryBudget* const budget = &options->shard.memory_budget;
  fields->Number("memory_budget_bytes", &budget->host_bytes, AtLeast(0),
                 ">= 0 (0: 80% of what the host grants)");
  fields->Number("device_memory_budget_bytes", &budget->device_bytes, only_cuda,
                 "0 (80% of the device), or more with backend \"cuda\"");
}

// How many rows close a round, and of which version.
void ReadCloseRule(const v1::JobConfig& config, ConfigFields* fields,
                   CoordinatorOptions* job) {
  fields->Number("quorum", &job->quorum, Between(0, config.max_workers()),
                 absl::StrCat("0 (all members) to max_workers (",
                              config.max_workers(), ")"));
  // proto/config.proto keeps it for asynchronous jobs: set, it would promise
  // what the server does not do.
  int32_t staleness = 0;
  fields->Number("max_staleness", &staleness, Between(0, 0), "0 (synchronous)");
}

void ReadGrams(ConfigFields* fields, bool no_log, CoordinatorOptions* job,
               FieldErrors* errors) {
  bool per_tensor = false;
  uint64_t every = 1;
  fields->Choice("round_log.grams", {{"none", false}, {"per_tensor", true}},
                 &per_tensor);
  fields->Number("round_log.every", &every, AtLeast(1), ">= 1");
  if (per_tensor && no_log) {
    errors->Add(FieldError("round_log.grams", "\"per_tensor\"",
                           "\"none\"; another one only with round_log.path"));
  }
  if (!per_tensor && every > 1) {
    errors->Add(CheckField(false, "round_log.every", static_cast<double>(every),
                           "only with round_log.grams"));
  }
  job->tensor_grams_every = per_tensor ? every : 0;
}

void ReadObservation(ConfigFields* fields, ServerOptions* options,
                     FieldErrors* errors) {
  MetricsSettings* const metrics = &options->metrics;
  fields->Number("metrics.port", &metrics->port, Between(0, 65535),
                 "0 to 65535");
  fields->Text("metrics.bind", &metrics->bind, nullptr, "");
  if (!metrics->bind.empty()) {
    errors->Add(CheckHost("metrics.bind", metrics->bind));
  }
  fields->Number("metrics.max_tensors", &metrics->max_tensors, AtLeast(0),
                 ">= 0");
  fields->Number("metrics.max_workers", &metrics->max_workers, AtLeast(0),
                 ">= 0");
  RoundLogOptions* const log = &options->round_log;
  fields->Text("round_log.path", &log->path, IsFilePath, "a file's path");
  fields->Number("round_log.max_bytes", &log->max_bytes,
                 AtLeast(kMinRoundLogBytes),
                 absl::StrCat(">= ", kMinRoundLogBytes));
  ReadGrams(fields, log->path.empty(), &options->coordinator, errors);
}

ConfigFields::Names<DType> Names(std::initializer_list<DType> types) {
  ConfigFields::Names<DType> names;
  for (const DType type : types)
    names.emplace_back(DTypeName(type).data(), type);
  return names;
}

void ReadShard(const v1::JobConfig& config, ConfigFields* fields,
               ShardOptions* options) {
  fields->Choice("push_dtype",
                 Names({DType::kF32, DType::kBF16, DType::kF16, DType::kI8}),
                 &options->push_dtype);
  fields->Choice("pull_dtype", Names({DType::kF32, DType::kBF16, DType::kF16}),
                 &options->pull_dtype);
  options->num_shards = config.shards_size();
  options->workers = config.workers();
  options->max_workers = config.max_workers();
  options->min_early_elements = kMinEarlyElements;
  options->reports_together = config.quorum() == 0 &&
                              config.round_timeout_seconds() == 0.0 &&
                              config.round_timeout_mad() == 0.0;
}

// The rules, the optimizer and its groups: both the coordinator and the shard
// need them.
void ReadFormulas(v1::JobConfig* config, ServerOptions* options,
                  FieldErrors* errors) {
  CoordinatorOptions* const job = &options->coordinator;
  ReadCombination(config, &job->combine, errors);
  CompleteOptimizer(config->mutable_optimizer());
  for (v1::GroupConfig& group : *config->mutable_groups()) {
    CompleteGroup(&group);
  }
  errors->Take(MakeOptimizerOptions(config->optimizer()),
               &options->shard.optimizer);
  job->optimizer = options->shard.optimizer;
  job->weight_decay = static_cast<float>(config->optimizer().weight_decay());
  options->shard.weight_decay = job->weight_decay;
  errors->Take(MakeGroupOptions(*config), &options->shard.groups);
  for (const GroupOptions& group : options->shard.groups) {
    job->group_weight_decay.emplace_back(group.name, group.weight_decay);
  }
}

// Adam's moments begin anew where the number of baseline batches changes: any
// late row would be such a change where rounds close without it.
void ReadMoments(const v1::JobConfig& config, ConfigFields* fields,
                 CoordinatorOptions* job, FieldErrors* errors) {
  fields->Choice("step_scale.reset_moments",
                 {{"never", false}, {"on_scale_change", true}},
                 &job->reset_moments);
  if (!job->reset_moments) return;
  const auto refuse = [errors](const char* field, const std::string& value,
                               const char* allowed) {
    errors->Add(FieldError(
        field, value,
        absl::StrCat("with step_scale.reset_moments \"on_scale_change\": ",
                     allowed)));
  };
  const std::string& kind = config.optimizer().kind();
  if (kind != "adam" && kind != "adamw") {
    refuse("optimizer.kind", Quoted(kind), "\"adam\", \"adamw\"");
  }
  if (config.quorum() != 0) {
    refuse("quorum", absl::StrCat(config.quorum()), "0");
  }
  if (config.round_timeout_seconds() != 0.0) {
    refuse("round_timeout_seconds",
           absl::StrCat(config.round_timeout_seconds()), "0");
  }
  if (config.round_timeout_mad() != 0.0) {
    refuse("round_timeout_mad", absl::StrCat(config.round_timeout_mad()), "0");
  }
  if (config.publish() == "pipelined") {
    refuse("publish", "\"pipelined\"", "\"atomic\"");
  }
}

// Nobody would apply the groups' gains: workers, who step, get one.
void CheckGroupGains(const CoordinatorOptions& job, FieldErrors* errors) {
  if (job.combine.step_scale.gain_scope != GainScope::kPerGroup ||
      job.optimizer.kind != OptimizerKind::kNone) {
    return;
  }
  errors->Add(
      FieldError("step_scale.gain_scope", "\"per_group\"",
                 "with optimizer.kind \"none\": \"global\" (workers get one "
                 "gain)"));
}

// Whether each part has a copy at the next shard: the coordinator and the shard
// need to know of it.
void ReadReplication(const v1::JobConfig& config, ConfigFields* fields,
                     ServerOptions* options, FieldErrors* errors) {
  bool* const replicated = &options->shard.replicated;
  *replicated = config.shards_size() >= 2;
  fields->Choice("replication", {{"none", false}, {"buddy", true}}, replicated);
  if (*replicated && config.shards_size() < 2) {
    errors->Add(FieldError("replication",
                           "\"buddy\", and number of shards is 1",
                           "\"none\" with 1 shard, \"buddy\" with 2 or more"));
  }
  options->coordinator.replicated = *replicated;
}

constexpr absl::string_view kNeedsPath = "only with checkpoint.path";

// What is set of `checkpoint`, though there is no path to write to.
absl::Status CheckNothingSet(const v1::CheckpointConfig& config) {
  FieldErrors errors;
  if (config.has_every_seconds()) {
    errors.Add(CheckField(false, "checkpoint.every_seconds",
                          config.every_seconds(), kNeedsPath));
  }
  errors.Add(CheckField(config.every_rounds() == 0, "checkpoint.every_rounds",
                        static_cast<double>(config.every_rounds()),
                        kNeedsPath));
  errors.Add(CheckField(config.keep() == 0, "checkpoint.keep", config.keep(),
                        kNeedsPath));
  if (!config.restore().empty()) {
    errors.Add(
        FieldError("checkpoint.restore", Quoted(config.restore()), kNeedsPath));
  }
  if (!config.restore_job().empty()) {
    errors.Add(FieldError("checkpoint.restore_job",
                          Quoted(config.restore_job()), kNeedsPath));
  }
  return errors.status();
}

// The names that a job may have and a folder may not.
bool IsFolderName(const std::string& job) {
  return job != "." && job != ".." && job.find('/') == std::string::npos;
}

absl::Status CheckRestoreJob(const v1::JobConfig& config) {
  const std::string& other = config.checkpoint().restore_job();
  if (other.empty()) return absl::OkStatus();
  if (!IsFolderName(other) || other == config.job()) {
    return FieldError("checkpoint.restore_job", Quoted(other),
                      "the name of another job, a folder below path");
  }
  if (config.checkpoint().restore() == "none") {
    return FieldError("checkpoint.restore_job", Quoted(other),
                      "only with restore \"latest\"");
  }
  return absl::OkStatus();
}

// Its defaults are set only if it has a path, since its other fields mean
// nothing without.
void ReadCheckpoint(const v1::JobConfig& config, ConfigFields* fields,
                    ServerOptions* server_options, FieldErrors* errors) {
  const v1::CheckpointConfig& checkpoint = config.checkpoint();
  if (checkpoint.path().empty())
    return errors->Add(CheckNothingSet(checkpoint));
  server_options->checkpoint_path = checkpoint.path();
  CheckpointOptions* const options = &server_options->coordinator.checkpoint;
  options->enabled = true;
  if (!IsFolderName(config.job())) {
    errors->Add(FieldError("job", Quoted(config.job()),
                           "with checkpoints: a name of a folder"));
  }
  options->every = absl::Seconds(checkpoint.every_rounds() == 0 ? 600 : 0);
  fields->Seconds("checkpoint.every_seconds", &options->every, AtLeast(0),
                  "finite, >= 0 (0: not by time)");
  fields->Number("checkpoint.every_rounds", &options->every_rounds);
  fields->Number("checkpoint.keep", &options->keep, AtLeast(1), ">= 1");
  fields->Choice("checkpoint.restore", {{"latest", true}, {"none", false}},
                 &options->restore);
  errors->Add(CheckRestoreJob(config));
  options->restore_job = checkpoint.restore_job();
}

// Adds a line for each field that a pipelined job (P43) has to have otherwise:
// they are about what many fields are together.
void CheckPipelined(const v1::JobConfig& config, const ServerOptions& options,
                    FieldErrors* errors) {
  errors->Add(CheckPipelining(options.coordinator.combine));
  if (OptimizerNeedsNorms(options.coordinator.optimizer.kind)) {
    errors->Add(FieldError("optimizer.kind", Quoted(config.optimizer().kind()),
                           "with publish \"pipelined\": one without a trust "
                           "ratio"));
  }
  if (config.replication() != "none") {
    errors->Add(FieldError("replication", Quoted(config.replication()),
                           "with publish \"pipelined\": \"none\""));
  }
  if (config.backend() != "cpu") {
    errors->Add(FieldError("backend", Quoted(config.backend()),
                           "with publish \"pipelined\": \"cpu\""));
  }
  errors->Add(CheckField(config.quorum() == 0, "quorum", config.quorum(),
                         "with publish \"pipelined\": 0"));
  errors->Add(CheckField(
      config.round_timeout_seconds() == 0.0, "round_timeout_seconds",
      config.round_timeout_seconds(), "with publish \"pipelined\": 0"));
  errors->Add(CheckField(config.round_timeout_mad() == 0.0, "round_timeout_mad",
                         config.round_timeout_mad(),
                         "with publish \"pipelined\": 0"));
}

// Sets what *config leaves out. What could not be read has its default.
ServerOptions Read(v1::JobConfig* config, FieldErrors* errors) {
  ServerOptions options;
  ConfigFields fields(config, "", errors);
  CoordinatorOptions* const job = &options.coordinator;
  fields.Text("job", &job->job, IsJob, "[A-Za-z0-9_.-]{1,64}");
  if (config->shards().empty()) config->add_shards("127.0.0.1:50051");
  ReadShards(*config, &fields, &options, errors);
  ReadWorkers(*config, &fields, job);
  ReadTimes(&fields, job);
  ReadCompute(*config, &fields, &options);
  ReadCloseRule(*config, &fields, job);
  ReadObservation(&fields, &options, errors);
  ReadShard(*config, &fields, &options.shard);
  ReadFormulas(config, &options, errors);
  ReadReplication(*config, &fields, &options, errors);
  ReadCheckpoint(*config, &fields, &options, errors);
  ReadSecurity(*config, &fields, &options.security, errors);
  ReadAccess(*config, &fields, &options.access, errors);
  fields.Choice("publish", {{"atomic", false}, {"pipelined", true}},
                &job->pipelined);
  if (job->pipelined && errors->empty()) {
    CheckPipelined(*config, options, errors);
  }
  ReadMoments(*config, &fields, job, errors);
  CheckGroupGains(*job, errors);
  options.shard.pipelined = job->pipelined;
  // Waves are about as early.
  options.shard.early_gram = !job->pipelined;
  // Whoever has the server's user may ask for memory, and shows no certificate.
  options.shard.shared_memory =
      options.unix_socket &&
      (config->shared_memory() == "on" ||
       (config->shared_memory() == "auto" && !options.security.tls()));
  options.backend_options.share_device = options.shard.shared_memory;
  return options;
}

}  // namespace

v1::JobConfig WithDefaults(v1::JobConfig config) {
  FieldErrors not_reported;
  Read(&config, &not_reported);
  return config;
}

absl::StatusOr<ServerOptions> MakeServerOptions(const v1::JobConfig& config) {
  FieldErrors errors;
  v1::JobConfig complete = config;
  ServerOptions options = Read(&complete, &errors);
  if (!errors.empty()) return errors.status();
  options.config_text = PrintJobConfig(complete);
  options.coordinator.checkpoint.config_text = options.config_text;
  options.fields = FieldValues(complete);
  options.fingerprint = ConfigFingerprint(complete);
  return options;
}

}  // namespace agg
