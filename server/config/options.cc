// One function for each group of fields. All errors are collected, so that a
// configuration is corrected in one go.
#include "server/config/options.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/address.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/config/access_config.h"
#include "server/config/combine_config.h"
#include "server/config/config_text.h"
#include "server/config/limits_config.h"
#include "server/config/optimizer_config.h"
#include "server/config/publish_config.h"
#include "server/config/survival_config.h"

namespace agg {
namespace {

// With less, the log would begin a new file every few rounds.
constexpr int64_t kMinRoundLogBytes = 65536;

// The limit of MakeShardPlan (proto/shard_plan.h).
constexpr int kMaxShards = 1024;
constexpr int64_t kMinEarlyElements = 65536;  // wakes a thread for no less

// With all digits, where CheckField has six.
absl::Status CheckNumber(bool ok, absl::string_view path, int64_t value,
                         absl::string_view allowed) {
  if (ok) return absl::OkStatus();
  return FieldError(path, absl::StrCat(value), allowed);
}

absl::Status CheckJob(const std::string& job) {
  const bool good =
      job.size() <= 64 && std::all_of(job.begin(), job.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
      });
  if (good) return absl::OkStatus();
  return FieldError("job", Quoted(job), "[A-Za-z0-9_.-]{1,64}");
}

void CheckShards(const v1::JobConfig& config, FieldErrors* errors) {
  if (config.shards_size() > kMaxShards) {
    errors->Add(CheckNumber(false, "number of shards", config.shards_size(),
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
  if (config.unix_socket() != "auto" && config.unix_socket() != "off") {
    errors->Add(FieldError("unix_socket", Quoted(config.unix_socket()),
                           "\"auto\", \"off\""));
  }
  const std::string& shared = config.shared_memory();
  if (shared != "auto" && shared != "on" && shared != "off") {
    errors->Add(FieldError("shared_memory", Quoted(shared),
                           "\"auto\", \"on\", \"off\""));
  }
}

void CheckWorkers(const v1::JobConfig& config, FieldErrors* errors) {
  const bool in_range =
      config.workers() >= 1 && config.workers() <= kMaxWorkers;
  errors->Add(CheckNumber(in_range, "workers", config.workers(),
                          absl::StrCat("1 to ", kMaxWorkers, " (required)")));
  // The others are measured by it, and have it as their default.
  if (!in_range) return;
  errors->Add(CheckNumber(
      config.min_workers() >= 1 && config.min_workers() <= config.workers(),
      "min_workers", config.min_workers(),
      absl::StrCat("1 to workers (", config.workers(), ")")));
  errors->Add(CheckNumber(
      config.max_workers() >= config.workers() &&
          config.max_workers() <= kMaxWorkers,
      "max_workers", config.max_workers(),
      absl::StrCat("workers (", config.workers(), ") to ", kMaxWorkers)));
}

std::optional<FloorPolicy> ParseFloorPolicy(const std::string& name) {
  if (name == "wait") return FloorPolicy::kWait;
  if (name == "warn") return FloorPolicy::kWarn;
  if (name == "fail") return FloorPolicy::kFail;
  return std::nullopt;
}

void CheckFloor(const v1::JobConfig& config, FieldErrors* errors) {
  if (!ParseFloorPolicy(config.floor_policy()).has_value()) {
    errors->Add(FieldError("floor_policy", Quoted(config.floor_policy()),
                           "\"wait\", \"warn\", \"fail\""));
  }
  if (config.on_divergence() != "warn" && config.on_divergence() != "fail") {
    errors->Add(FieldError("on_divergence", Quoted(config.on_divergence()),
                           "\"warn\", \"fail\""));
  }
  const double timeout = config.floor_timeout_seconds();
  errors->Add(CheckField(config.floor_policy() == "fail"
                             ? IsFinitePositive(timeout)
                             : timeout == 0.0,
                         "floor_timeout_seconds", timeout,
                         "finite, > 0 with floor_policy \"fail\"; else 0"));
}

void CheckTimes(const v1::JobConfig& config, FieldErrors* errors) {
  errors->Add(
      CheckField(IsFiniteAtLeast(config.start_timeout_seconds(), 0.0),
                 "start_timeout_seconds", config.start_timeout_seconds(),
                 "finite, >= 0 (0: never start with fewer than `workers`)"));
  errors->Add(CheckField(IsFiniteAtLeast(config.lease_seconds(), 0.1),
                         "lease_seconds", config.lease_seconds(),
                         "finite, >= 0.1"));
  errors->Add(CheckField(IsFiniteAtLeast(config.reconnect_grace_seconds(), 0.1),
                         "reconnect_grace_seconds",
                         config.reconnect_grace_seconds(), "finite, >= 0.1"));
  errors->Add(CheckField(IsFiniteAtLeast(config.round_timeout_seconds(), 0.0),
                         "round_timeout_seconds",
                         config.round_timeout_seconds(),
                         "finite, >= 0 (0: off)"));
  errors->Add(CheckField(IsFiniteAtLeast(config.round_timeout_mad(), 0.0),
                         "round_timeout_mad", config.round_timeout_mad(),
                         "finite, >= 0 (0: off)"));
  errors->Add(CheckField(IsFinitePositive(config.straggler_warning_seconds()),
                         "straggler_warning_seconds",
                         config.straggler_warning_seconds(), "finite, > 0"));
  errors->Add(CheckField(IsFinitePositive(config.start_warning_seconds()),
                         "start_warning_seconds",
                         config.start_warning_seconds(), "finite, > 0"));
  errors->Add(CheckField(IsFinitePositive(config.phase_timeout_seconds()),
                         "phase_timeout_seconds",
                         config.phase_timeout_seconds(), "finite, > 0"));
}

absl::StatusOr<DType> ParseDType(absl::string_view path,
                                 const std::string& name, bool int8) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI8}) {
    if (DTypeName(dtype) == name && (int8 || dtype != DType::kI8)) return dtype;
  }
  return FieldError(
      path, Quoted(name),
      absl::StrCat("\"f32\", \"bf16\", \"f16\"", int8 ? ", \"int8\"" : ""));
}

std::optional<GramArithmetic> ParseGram(const std::string& name) {
  if (name == "by_device") return GramArithmetic::kByDevice;
  if (name == "double") return GramArithmetic::kDouble;
  if (name == "double_float") return GramArithmetic::kDoubleFloat;
  return std::nullopt;
}

void CheckCompute(const v1::JobConfig& config, FieldErrors* errors) {
  if (!ParseGram(config.cuda_gram()).has_value()) {
    errors->Add(FieldError("cuda_gram", Quoted(config.cuda_gram()),
                           "\"by_device\", \"double\", \"double_float\""));
  }
  errors->Add(CheckNumber(
      config.device() >= 0 &&
          (config.backend() == "cuda" || config.device() == 0),
      "device", config.device(),
      "0, or up to the number of devices - 1 with backend \"cuda\""));
  if (config.backend() != "cpu" && config.backend() != "cuda") {
    errors->Add(
        FieldError("backend", Quoted(config.backend()), "\"cpu\", \"cuda\""));
  }
  errors->Add(CheckNumber(
      config.compute_threads() >= 0 && config.compute_threads() <= 1024,
      "compute_threads", config.compute_threads(),
      "0 to 1024 (0: one per CPU)"));
  errors->Add(CheckNumber(config.memory_budget_bytes() >= 0,
                          "memory_budget_bytes", config.memory_budget_bytes(),
                          ">= 0 (0: 80% of what the host grants)"));
  errors->Add(CheckNumber(config.device_memory_budget_bytes() >= 0 &&
                              (config.backend() == "cuda" ||
                               config.device_memory_budget_bytes() == 0),
                          "device_memory_budget_bytes",
                          config.device_memory_budget_bytes(),
                          "0 (80% of the device), or more with backend "
                          "\"cuda\""));
}

void CheckObservation(const v1::JobConfig& config, FieldErrors* errors) {
  const v1::MetricsConfig& metrics = config.metrics();
  errors->Add(CheckNumber(metrics.port() >= 0 && metrics.port() <= 65535,
                          "metrics.port", metrics.port(), "0 to 65535"));
  if (!metrics.bind().empty()) {
    errors->Add(CheckHost("metrics.bind", metrics.bind()));
  }
  errors->Add(CheckNumber(metrics.max_tensors() >= 0, "metrics.max_tensors",
                          metrics.max_tensors(), ">= 0"));
  errors->Add(CheckNumber(metrics.max_workers() >= 0, "metrics.max_workers",
                          metrics.max_workers(), ">= 0"));
  const v1::RoundLogConfig& log = config.round_log();
  if (!log.path().empty() && log.path().back() == '/') {
    errors->Add(
        FieldError("round_log.path", Quoted(log.path()), "a file's path"));
  }
  errors->Add(CheckNumber(log.max_bytes() >= kMinRoundLogBytes,
                          "round_log.max_bytes", log.max_bytes(),
                          absl::StrCat(">= ", kMinRoundLogBytes)));
}

// `options` with what the configuration says about members and times.
CoordinatorOptions MakeCoordinatorOptions(const v1::JobConfig& config,
                                          CoordinatorOptions options) {
  options.job = config.job();
  options.workers = config.workers();
  options.min_workers = config.min_workers();
  options.max_workers = config.max_workers();
  options.start_timeout = absl::Seconds(config.start_timeout_seconds());
  options.lease = absl::Seconds(config.lease_seconds());
  options.reconnect_grace = absl::Seconds(config.reconnect_grace_seconds());
  options.quorum = config.quorum();
  options.round_timeout = absl::Seconds(config.round_timeout_seconds());
  options.round_timeout_mad = config.round_timeout_mad();
  options.straggler_warning = absl::Seconds(config.straggler_warning_seconds());
  options.start_warning = absl::Seconds(config.start_warning_seconds());
  options.phase_timeout = absl::Seconds(config.phase_timeout_seconds());
  options.floor_policy =
      ParseFloorPolicy(config.floor_policy()).value_or(FloorPolicy::kWait);
  options.floor_timeout = absl::Seconds(config.floor_timeout_seconds());
  options.max_rounds = config.max_rounds();
  options.max_skipped_rounds = config.max_skipped_rounds();
  options.fail_on_divergence = config.on_divergence() == "fail";
  options.weight_decay = static_cast<float>(config.optimizer().weight_decay());
  return options;
}

void FillShardOptions(const v1::JobConfig& config, ShardOptions* options,
                      FieldErrors* errors) {
  errors->Take(ParseDType("push_dtype", config.push_dtype(), true),
               &options->push_dtype);
  errors->Take(ParseDType("pull_dtype", config.pull_dtype(), false),
               &options->pull_dtype);
  options->num_shards = config.shards_size();
  options->workers = config.workers();
  options->max_workers = config.max_workers();
  options->weight_decay = static_cast<float>(config.optimizer().weight_decay());
  options->min_early_elements = kMinEarlyElements;
  options->reports_together = config.quorum() == 0 &&
                              config.round_timeout_seconds() == 0.0 &&
                              config.round_timeout_mad() == 0.0;
  options->memory_budget = {config.memory_budget_bytes(),
                            config.device_memory_budget_bytes()};
}

// The rules, the optimizer and its groups: both the coordinator and the shard
// need them.
void FillFormulas(const v1::JobConfig& config, ServerOptions* options,
                  FieldErrors* errors) {
  errors->Take(MakeCombineOptions(config), &options->coordinator.combine);
  errors->Take(MakeOptimizerOptions(config.optimizer()),
               &options->shard.optimizer);
  options->coordinator.optimizer = options->shard.optimizer;
  errors->Take(MakeGroupOptions(config), &options->shard.groups);
  for (const GroupOptions& group : options->shard.groups) {
    options->coordinator.group_weight_decay.emplace_back(group.name,
                                                         group.weight_decay);
  }
}

// Copies of the parts, in memory and on disk: both the coordinator and the
// shard need to know of them.
void FillSurvival(const v1::JobConfig& config, ServerOptions* options,
                  FieldErrors* errors) {
  errors->Take(MakeReplicated(config), &options->shard.replicated);
  options->coordinator.replicated = options->shard.replicated;
  errors->Take(MakeCheckpointOptions(config), &options->coordinator.checkpoint);
  options->checkpoint_path = config.checkpoint().path();
}

// REQUIRES: all else is filled in, without an error.
void FillPublish(const v1::JobConfig& config, ServerOptions* options,
                 FieldErrors* errors) {
  AGG_DCHECK(errors->empty());
  errors->Take(MakePipelined(config, options->coordinator.combine,
                             options->coordinator.optimizer),
               &options->shard.pipelined);
  options->coordinator.pipelined = options->shard.pipelined;
  // Waves are about as early.
  options->shard.early_gram = !options->shard.pipelined;
}

}  // namespace

absl::StatusOr<ServerOptions> MakeServerOptions(const v1::JobConfig& config) {
  AGG_DCHECK(!config.publish().empty());
  FieldErrors errors;
  errors.Add(CheckJob(config.job()));
  CheckShards(config, &errors);
  CheckWorkers(config, &errors);
  CheckFloor(config, &errors);
  CheckTimes(config, &errors);
  CheckCompute(config, &errors);
  errors.Add(CheckCloseRule(config));
  CheckObservation(config, &errors);
  ServerOptions options;
  FillShardOptions(config, &options.shard, &errors);
  FillFormulas(config, &options, &errors);
  FillSurvival(config, &options, &errors);
  errors.Take(MakeSecurity(config), &options.security);
  errors.Take(MakeAccessOptions(config), &options.access);
  if (errors.empty()) FillPublish(config, &options, &errors);
  if (!errors.empty()) return errors.status();
  options.shards.assign(config.shards().begin(), config.shards().end());
  options.coordinator = MakeCoordinatorOptions(config, options.coordinator);
  options.backend = config.backend();
  options.backend_options.num_threads = config.compute_threads();
  options.backend_options.cuda_gram = *ParseGram(config.cuda_gram());
  options.backend_options.cuda_device = config.device();
  options.unix_socket = config.unix_socket() == "auto";
  // Whoever has the server's user may ask for memory, and shows no certificate.
  options.shard.shared_memory =
      options.unix_socket &&
      (config.shared_memory() == "on" ||
       (config.shared_memory() == "auto" && !options.security.tls()));
  options.backend_options.share_device = options.shard.shared_memory;
  options.metrics = {config.metrics().bind(), config.metrics().port(),
                     config.metrics().max_tensors(),
                     config.metrics().max_workers()};
  options.round_log = {config.round_log().path(),
                       config.round_log().max_bytes()};
  options.config_text = PrintJobConfig(config);
  options.coordinator.checkpoint.config_text = options.config_text;
  options.fingerprint = ConfigFingerprint(config);
  return options;
}

}  // namespace agg
