// A caller's struct may be of an older or a newer release: it is read into one
// of this release, whose further fields have their defaults, and written back
// as far as it goes.
#include "worker_client/c/c_structs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "proto/tls_options.h"
#include "server/base/field_error.h"
#include "server/base/status_macros.h"

namespace agg {
namespace {

// The bytes of every struct's first release are more than these.
constexpr size_t kMinSize = sizeof(size_t);
constexpr size_t kMaxSize = 4096;  // of any release to come

absl::Status CheckSize(absl::string_view name, size_t size) {
  if (size > kMinSize && size <= kMaxSize) return absl::OkStatus();
  return FieldError(absl::StrCat(name, ".size"), absl::StrCat(size),
                    absl::StrCat("sizeof(", name, ")"));
}

// REQUIRES: `theirs` begins with its size.
template <typename Struct>
absl::StatusOr<Struct> Read(absl::string_view name, const Struct* theirs,
                            Struct ours) {
  if (theirs == nullptr) return FieldError(name, "NULL", "a struct");
  AGG_RETURN_IF_ERROR(CheckSize(name, theirs->size));
  std::memcpy(&ours, theirs, std::min(theirs->size, sizeof(Struct)));
  return ours;
}

template <typename Struct>
absl::Status Write(absl::string_view name, Struct ours, Struct* theirs) {
  if (theirs == nullptr) return absl::OkStatus();
  AGG_RETURN_IF_ERROR(CheckSize(name, theirs->size));
  ours.size = theirs->size;
  std::memcpy(theirs, &ours, std::min(theirs->size, sizeof(Struct)));
  return absl::OkStatus();
}

absl::Status ReadSeconds(absl::string_view name, double seconds,
                         absl::Duration* out) {
  if (!(seconds >= 0.0)) {
    return FieldError(name, absl::StrCat(seconds),
                      "seconds, >= 0, or infinity");
  }
  *out = absl::Seconds(seconds);
  return absl::OkStatus();
}

absl::Status ReadTimes(const agg_options& from, ClientOptions* to) {
  absl::Status status;
  const auto read = [&](const char* name, double seconds, absl::Duration* at) {
    status.Update(ReadSeconds(name, seconds, at));
  };
  read("connect_timeout", from.connect_timeout, &to->connect_timeout);
  read("call_timeout", from.call_timeout, &to->call_timeout);
  read("transfer_timeout", from.transfer_timeout, &to->transfer_timeout);
  read("round_timeout", from.round_timeout, &to->round_timeout);
  read("reconnect_window", from.reconnect_window, &to->reconnect_window);
  read("recovery_window", from.recovery_window, &to->recovery_window);
  return status;
}

void ReadText(const char* from, std::string* to) {
  if (from != nullptr) *to = from;
}

void ReadTls(const agg_options& from, TlsOptions* to) {
  ReadText(from.tls_ca, &to->ca);
  ReadText(from.tls_certificate, &to->certificate);
  ReadText(from.tls_key, &to->key);
  ReadText(from.tls_server_name, &to->server_name);
}

absl::StatusOr<TensorSpec> ReadSpec(size_t index, const agg_spec& from) {
  const std::string name = absl::StrCat("specs[", index, "]");
  if (from.name == nullptr) {
    return FieldError(absl::StrCat(name, ".name"), "NULL", "a name");
  }
  if (from.num_dimensions < 0 ||
      (from.num_dimensions > 0 && from.shape == nullptr)) {
    return FieldError(absl::StrCat(name, ".num_dimensions"),
                      absl::StrCat(from.num_dimensions),
                      "0 or more, with as many in shape");
  }
  TensorSpec spec;
  spec.name = from.name;
  if (from.num_dimensions > 0) {
    spec.shape.assign(from.shape, from.shape + from.num_dimensions);
  }
  if (from.group != nullptr) spec.group = from.group;
  spec.optional = from.optional != 0;
  return spec;
}

absl::Status CheckList(absl::string_view name, const void* list, size_t count) {
  if (list != nullptr || count == 0) return absl::OkStatus();
  return FieldError(name, "NULL", absl::StrCat("a list of ", count));
}

}  // namespace

JobStore::JobStore(const JobDescription& description) : job(description) {
  for (const std::string& shard : job.shards) shards.push_back(shard.c_str());
  for (const std::string& transport : job.transports) {
    transports.push_back(transport.c_str());
  }
}

agg_options DefaultOptions() {
  static const ClientOptions* const defaults = new ClientOptions;
  agg_options options = {};
  options.size = sizeof(options);
  options.coordinator = defaults->coordinator.c_str();
  options.connect_timeout = absl::ToDoubleSeconds(defaults->connect_timeout);
  options.call_timeout = absl::ToDoubleSeconds(defaults->call_timeout);
  options.transfer_timeout = absl::ToDoubleSeconds(defaults->transfer_timeout);
  options.round_timeout = absl::ToDoubleSeconds(defaults->round_timeout);
  options.reconnect_window = absl::ToDoubleSeconds(defaults->reconnect_window);
  options.recovery_window = absl::ToDoubleSeconds(defaults->recovery_window);
  options.channels_per_shard = defaults->channels_per_shard;
  options.local_sockets = defaults->local_sockets;
  options.shared_memory = defaults->shared_memory;
  options.error_feedback = -1;
  options.copy_threads = defaults->copy_threads;
  options.cuda_rows = defaults->cuda_rows;
  return options;
}

absl::StatusOr<ClientOptions> OptionsOf(const agg_options* theirs) {
  AGG_ASSIGN_OR_RETURN(const agg_options read,
                       Read("agg_options", theirs, DefaultOptions()));
  const agg_options& from = read;
  ClientOptions options;
  absl::Status status = ReadTimes(from, &options);
  status.Update(CheckList("specs", from.specs, from.num_specs));
  if (from.coordinator == nullptr) {
    status.Update(FieldError("coordinator", "NULL", "host:port"));
  }
  if (from.error_feedback < -1 || from.error_feedback > 1) {
    const std::string value = absl::StrCat(from.error_feedback);
    const char* const allowed = "-1 (as push_dtype wants it), 0, 1";
    status.Update(FieldError("error_feedback", value, allowed));
  }
  if (!status.ok()) return status;
  options.coordinator = from.coordinator;
  options.rank = from.rank;
  options.observer = from.observer != 0;
  for (size_t i = 0; i < from.num_specs; ++i) {
    AGG_ASSIGN_OR_RETURN(TensorSpec spec, ReadSpec(i, from.specs[i]));
    options.manifest.tensors.push_back(std::move(spec));
  }
  ReadText(from.client_name, &options.client_name);
  options.channels_per_shard = from.channels_per_shard;
  options.local_sockets = from.local_sockets != 0;
  options.shared_memory = from.shared_memory != 0;
  if (from.error_feedback >= 0) options.error_feedback = from.error_feedback;
  options.copy_threads = from.copy_threads;
  options.cuda_rows = from.cuda_rows != 0;
  options.tune_malloc = from.tune_malloc != 0;
  ReadText(from.audit_log, &options.audit_log);
  ReadText(from.token_file, &options.token_file);
  ReadTls(from, &options.tls);
  return options;
}

absl::StatusOr<PushInfo> PushInfoOf(const agg_push_info* theirs) {
  PushInfo info;
  if (theirs == nullptr) return info;
  AGG_ASSIGN_OR_RETURN(const agg_push_info read,
                       Read("agg_push_info", theirs, agg_push_info{}));
  if (read.examples != 0) info.examples = read.examples;
  if (read.accumulation != 0) info.accumulation = read.accumulation;
  if (read.has_norm_sum) {
    info.micro_norm_squared_sum = read.micro_norm_squared_sum;
  }
  if (read.has_loss) info.loss = read.loss;
  if (read.loss_scale != 0.0) info.loss_scale = read.loss_scale;
  info.parameters_digest = read.parameters_digest;
  if (read.traceparent != nullptr) info.traceparent = read.traceparent;
  return info;
}

absl::StatusOr<std::vector<TensorView>> ViewsOf(const agg_view* views,
                                                size_t count) {
  AGG_RETURN_IF_ERROR(CheckList("views", views, count));
  std::vector<TensorView> result(count);
  for (size_t i = 0; i < count; ++i) {
    if (views[i].in_row != 0) continue;  // its pieces have all of it
    const int32_t dtype = views[i].dtype;
    if (dtype < AGG_F32 || dtype > AGG_F16) {
      return FieldError(absl::StrCat("views[", i, "].dtype"),
                        absl::StrCat(dtype), "1 (f32), 2 (bf16), 3 (f16)");
    }
    result[i].data = views[i].data;
    result[i].num_elements = views[i].num_elements;
    result[i].dtype = static_cast<DType>(dtype);
  }
  return result;
}

absl::StatusOr<std::vector<MutableTensorView>> TargetsOf(
    const agg_target* targets, size_t count) {
  AGG_RETURN_IF_ERROR(CheckList("parameters", targets, count));
  std::vector<MutableTensorView> result(count);
  for (size_t i = 0; i < count; ++i) {
    result[i].data = targets[i].data;
    result[i].num_elements = targets[i].num_elements;
  }
  return result;
}

OutcomeStore StoreOf(RoundOutcome outcome) {
  OutcomeStore store;
  store.ranks.assign(outcome.ranks.begin(), outcome.ranks.end());
  store.excluded_ranks.assign(outcome.excluded_ranks.begin(),
                              outcome.excluded_ranks.end());
  store.differing_ranks.assign(outcome.differing_ranks.begin(),
                               outcome.differing_ranks.end());
  store.outcome = std::move(outcome);
  return store;
}

absl::Status Fill(const OutcomeStore& store, agg_outcome* outcome) {
  const RoundOutcome& from = store.outcome;
  agg_outcome to = {};
  to.round = from.round;
  to.version = from.version;
  to.made = from.made;
  to.kind = static_cast<int32_t>(from.kind);
  to.included = from.included;
  to.finished = from.finished;
  to.ranks = store.ranks.data();
  to.num_ranks = static_cast<int32_t>(store.ranks.size());
  to.excluded_ranks = store.excluded_ranks.data();
  to.num_excluded_ranks = static_cast<int32_t>(store.excluded_ranks.size());
  to.learning_rate = from.learning_rate;
  to.gain = from.gain;
  to.tau = from.tau;
  to.orthogonality = from.orthogonality;
  to.loss = from.loss;
  to.combined_norm = from.combined_norm;
  to.message = from.message.c_str();
  to.rule = from.rule.c_str();
  to.scope = from.scope.c_str();
  to.step_scale = from.step_scale.c_str();
  to.absent_tensors = from.absent_tensors.data();
  to.num_absent_tensors = static_cast<int32_t>(from.absent_tensors.size());
  to.differing_ranks = store.differing_ranks.data();
  to.num_differing_ranks = static_cast<int32_t>(store.differing_ranks.size());
  return Write("agg_outcome", to, outcome);
}

absl::Status Fill(const JobStore& store, uint64_t num_tensors, agg_job* job) {
  const JobDescription& from = store.job;
  agg_job to = {};
  to.job = from.job.c_str();
  to.rule = from.rule.c_str();
  to.scope = from.scope.c_str();
  to.step_scale = from.step_scale.c_str();
  to.optimizer = from.optimizer.c_str();
  to.workers = from.workers;
  to.num_shards = static_cast<int32_t>(from.shards.size());
  to.shards = store.shards.data();
  to.transports = store.transports.data();
  to.push_dtype = static_cast<int32_t>(from.push_dtype);
  to.pull_dtype = static_cast<int32_t>(from.pull_dtype);
  to.num_tensors = num_tensors;
  return Write("agg_job", to, job);
}

absl::Status Fill(const agg_state& values, agg_state* state) {
  return Write("agg_state", values, state);
}

absl::Status Fill(const agg_event& values, agg_event* event) {
  return Write("agg_event", values, event);
}

agg_spec SpecOf(const TensorSpec& spec) {
  agg_spec to = {};
  to.name = spec.name.c_str();
  to.group = spec.group.c_str();
  to.shape = spec.shape.data();
  to.num_dimensions = static_cast<int32_t>(spec.shape.size());
  to.optional = spec.optional;
  return to;
}

}  // namespace agg
