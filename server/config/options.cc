#include "server/config/options.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/address.h"
#include "server/base/field_error.h"
#include "server/config/combine_config.h"
#include "server/config/config_text.h"
#include "server/config/optimizer_config.h"

namespace agg {
namespace {

// With less, the log would begin a new file every few rounds.
constexpr int64_t kMinRoundLogBytes = 65536;

// The limit of MakeShardPlan (proto/shard_plan.h).
constexpr int kMaxShards = 1024;

absl::Status CheckJob(const std::string& job) {
  const bool good =
      job.size() <= 64 && std::all_of(job.begin(), job.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
      });
  if (good) return absl::OkStatus();
  return FieldError("job", Quoted(job), "[A-Za-z0-9_.-]{1,64}");
}

absl::Status CheckShards(const v1::JobConfig& config) {
  if (config.shards_size() > kMaxShards) {
    return CheckField(false, "number of shards", config.shards_size(),
                      absl::StrCat("1 to ", kMaxShards));
  }
  std::set<std::string> seen;
  for (int i = 0; i < config.shards_size(); ++i) {
    const std::string path = absl::StrCat("shards[", i, "]");
    const absl::StatusOr<Address> address = ParseAddress(config.shards(i));
    if (!address.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, " is ", address.status().message()));
    }
    if (!seen.insert(config.shards(i)).second) {
      return FieldError(path, Quoted(config.shards(i)),
                        "an address that no other shard has");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWorkers(const v1::JobConfig& config) {
  absl::Status status = CheckField(
      config.workers() >= 1 && config.workers() <= kMaxWorkers, "workers",
      config.workers(), absl::StrCat("1 to ", kMaxWorkers, " (required)"));
  status.Update(CheckField(
      config.min_workers() >= 1 && config.min_workers() <= config.workers(),
      "min_workers", config.min_workers(),
      absl::StrCat("1 to workers (", config.workers(), ")")));
  status.Update(CheckField(
      config.max_workers() >= config.workers() &&
          config.max_workers() <= kMaxWorkers,
      "max_workers", config.max_workers(),
      absl::StrCat("workers (", config.workers(), ") to ", kMaxWorkers)));
  return status;
}

absl::Status CheckTimes(const v1::JobConfig& config) {
  absl::Status status =
      CheckField(IsFiniteAtLeast(config.start_timeout_seconds(), 0.0),
                 "start_timeout_seconds", config.start_timeout_seconds(),
                 "finite, >= 0 (0: never start with fewer than `workers`)");
  status.Update(CheckField(IsFiniteAtLeast(config.lease_seconds(), 0.1),
                           "lease_seconds", config.lease_seconds(),
                           "finite, >= 0.1"));
  status.Update(
      CheckField(IsFiniteAtLeast(config.reconnect_grace_seconds(), 0.1),
                 "reconnect_grace_seconds", config.reconnect_grace_seconds(),
                 "finite, >= 0.1"));
  status.Update(CheckField(IsFiniteAtLeast(config.round_timeout_seconds(), 0.0),
                           "round_timeout_seconds",
                           config.round_timeout_seconds(),
                           "finite, >= 0 (0: off)"));
  status.Update(CheckField(IsFinitePositive(config.straggler_warning_seconds()),
                           "straggler_warning_seconds",
                           config.straggler_warning_seconds(), "finite, > 0"));
  return status;
}

absl::StatusOr<DType> ParseDType(absl::string_view path,
                                 const std::string& name) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (DTypeName(dtype) == name) return dtype;
  }
  return FieldError(path, Quoted(name), "\"f32\", \"bf16\", \"f16\"");
}

std::optional<GramArithmetic> ParseGram(const std::string& name) {
  if (name == "by_device") return GramArithmetic::kByDevice;
  if (name == "double") return GramArithmetic::kDouble;
  if (name == "double_float") return GramArithmetic::kDoubleFloat;
  return std::nullopt;
}

absl::Status CheckCompute(const v1::JobConfig& config) {
  absl::Status status;
  if (!ParseGram(config.cuda_gram()).has_value()) {
    status.Update(FieldError("cuda_gram", Quoted(config.cuda_gram()),
                             "\"by_device\", \"double\", \"double_float\""));
  }
  if (config.backend() != "cpu" && config.backend() != "cuda") {
    status.Update(
        FieldError("backend", Quoted(config.backend()), "\"cpu\", \"cuda\""));
  }
  status.Update(CheckField(
      config.compute_threads() >= 0 && config.compute_threads() <= 1024,
      "compute_threads", config.compute_threads(),
      "0 to 1024 (0: one per CPU)"));
  status.Update(CheckField(config.memory_budget_bytes() >= 0,
                           "memory_budget_bytes", config.memory_budget_bytes(),
                           ">= 0 (0: 80% of what the host grants)"));
  status.Update(CheckField(config.device_memory_budget_bytes() >= 0 &&
                               (config.backend() == "cuda" ||
                                config.device_memory_budget_bytes() == 0),
                           "device_memory_budget_bytes",
                           config.device_memory_budget_bytes(),
                           "0 (80% of the device), or more with backend "
                           "\"cuda\""));
  return status;
}

// Fields that proto/config.proto keeps for asynchronous jobs: set, they would
// promise what the server does not do.
absl::Status CheckSynchronous(const v1::JobConfig& config) {
  absl::Status status = CheckField(config.quorum() == 0, "quorum",
                                   config.quorum(), "0 (all workers)");
  status.Update(CheckField(config.max_staleness() == 0, "max_staleness",
                           config.max_staleness(), "0 (synchronous)"));
  return status;
}

absl::Status CheckObservation(const v1::JobConfig& config) {
  const v1::MetricsConfig& metrics = config.metrics();
  absl::Status status =
      CheckField(metrics.port() >= 0 && metrics.port() <= 65535, "metrics.port",
                 metrics.port(), "0 to 65535");
  status.Update(CheckField(metrics.max_tensors() >= 0, "metrics.max_tensors",
                           metrics.max_tensors(), ">= 0"));
  status.Update(CheckField(metrics.max_workers() >= 0, "metrics.max_workers",
                           metrics.max_workers(), ">= 0"));
  const v1::RoundLogConfig& log = config.round_log();
  if (!log.path().empty() && log.path().back() == '/') {
    status.Update(
        FieldError("round_log.path", Quoted(log.path()), "a file's path"));
  }
  status.Update(CheckField(log.max_bytes() >= kMinRoundLogBytes,
                           "round_log.max_bytes",
                           static_cast<double>(log.max_bytes()),
                           absl::StrCat(">= ", kMinRoundLogBytes)));
  return status;
}

CoordinatorOptions MakeCoordinatorOptions(const v1::JobConfig& config) {
  CoordinatorOptions options;
  options.job = config.job();
  options.workers = config.workers();
  options.min_workers = config.min_workers();
  options.max_workers = config.max_workers();
  options.start_timeout = absl::Seconds(config.start_timeout_seconds());
  options.lease = absl::Seconds(config.lease_seconds());
  options.reconnect_grace = absl::Seconds(config.reconnect_grace_seconds());
  options.round_timeout = absl::Seconds(config.round_timeout_seconds());
  options.straggler_warning = absl::Seconds(config.straggler_warning_seconds());
  options.max_rounds = config.max_rounds();
  options.weight_decay = static_cast<float>(config.optimizer().weight_decay());
  return options;
}

absl::Status FillShardOptions(const v1::JobConfig& config,
                              ShardOptions* options) {
  const absl::StatusOr<DType> push =
      ParseDType("push_dtype", config.push_dtype());
  if (!push.ok()) return push.status();
  const absl::StatusOr<DType> pull =
      ParseDType("pull_dtype", config.pull_dtype());
  if (!pull.ok()) return pull.status();
  options->num_shards = config.shards_size();
  options->workers = config.workers();
  options->max_workers = config.max_workers();
  options->push_dtype = *push;
  options->pull_dtype = *pull;
  options->weight_decay = static_cast<float>(config.optimizer().weight_decay());
  options->memory_budget = {config.memory_budget_bytes(),
                            config.device_memory_budget_bytes()};
  return absl::OkStatus();
}

// The rules, the optimizer and its groups: both the coordinator and the shard
// need them.
absl::Status FillFormulas(const v1::JobConfig& config, ServerOptions* options) {
  const absl::StatusOr<CombineOptions> combine = MakeCombineOptions(config);
  if (!combine.ok()) return combine.status();
  options->coordinator.combine = *combine;
  const absl::StatusOr<OptimizerOptions> optimizer =
      MakeOptimizerOptions(config.optimizer());
  if (!optimizer.ok()) return optimizer.status();
  options->coordinator.optimizer = options->shard.optimizer = *optimizer;
  const absl::StatusOr<std::vector<GroupOptions>> groups =
      MakeGroupOptions(config);
  if (!groups.ok()) return groups.status();
  options->shard.groups = *groups;
  for (const GroupOptions& group : *groups) {
    options->coordinator.group_weight_decay.emplace_back(group.name,
                                                         group.weight_decay);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServerOptions> MakeServerOptions(const v1::JobConfig& config) {
  absl::Status status = CheckJob(config.job());
  status.Update(CheckShards(config));
  status.Update(CheckWorkers(config));
  status.Update(CheckTimes(config));
  status.Update(CheckCompute(config));
  status.Update(CheckSynchronous(config));
  status.Update(CheckObservation(config));
  if (!status.ok()) return status;
  ServerOptions options;
  options.shards.assign(config.shards().begin(), config.shards().end());
  options.coordinator = MakeCoordinatorOptions(config);
  status = FillShardOptions(config, &options.shard);
  if (status.ok()) status = FillFormulas(config, &options);
  if (!status.ok()) return status;
  options.backend = config.backend();
  options.backend_options.num_threads = config.compute_threads();
  options.backend_options.cuda_gram = *ParseGram(config.cuda_gram());
  options.metrics = {config.metrics().bind(), config.metrics().port(),
                     config.metrics().max_tensors(),
                     config.metrics().max_workers()};
  options.round_log = {config.round_log().path(),
                       config.round_log().max_bytes()};
  options.config_text = PrintJobConfig(config);
  options.fingerprint = ConfigFingerprint(config);
  return options;
}

}  // namespace agg
