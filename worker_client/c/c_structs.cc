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
#include "absl/types/optional.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
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

// Calls `visit` with each option that both structs have: its name, the C
// struct's field and the client's. One line is all that this file says of an
// option. (specs and num_specs together are the manifest, which OptionsOf
// reads.)
template <typename Theirs, typename Ours, typename Visitor>
void ForEachOption(Theirs& theirs, Ours& ours, Visitor& visit) {
  visit("coordinator", theirs.coordinator, ours.coordinator);
  visit("rank", theirs.rank, ours.rank);
  visit("observer", theirs.observer, ours.observer);
  visit("client_name", theirs.client_name, ours.client_name);
  visit("connect_timeout", theirs.connect_timeout, ours.connect_timeout);
  visit("call_timeout", theirs.call_timeout, ours.call_timeout);
  visit("transfer_timeout", theirs.transfer_timeout, ours.transfer_timeout);
  visit("round_timeout", theirs.round_timeout, ours.round_timeout);
  visit("reconnect_window", theirs.reconnect_window, ours.reconnect_window);
  visit("recovery_window", theirs.recovery_window, ours.recovery_window);
  visit("channels_per_shard", theirs.channels_per_shard,
        ours.channels_per_shard);
  visit("local_sockets", theirs.local_sockets, ours.local_sockets);
  visit("tune_malloc", theirs.tune_malloc, ours.tune_malloc);
  visit("audit_log", theirs.audit_log, ours.audit_log);
  visit("shared_memory", theirs.shared_memory, ours.shared_memory);
  visit("error_feedback", theirs.error_feedback, ours.error_feedback);
  visit("copy_threads", theirs.copy_threads, ours.copy_threads);
  visit("tls_ca", theirs.tls_ca, ours.tls.ca);
  visit("tls_certificate", theirs.tls_certificate, ours.tls.certificate);
  visit("tls_key", theirs.tls_key, ours.tls.key);
  visit("tls_server_name", theirs.tls_server_name, ours.tls.server_name);
  visit("token_file", theirs.token_file, ours.token_file);
  visit("cuda_rows", theirs.cuda_rows, ours.cuda_rows);
}

// Writes the client's options into a C struct, which points into them.
struct OptionWriter {
  void operator()(const char*, double& to, absl::Duration from) {
    to = absl::ToDoubleSeconds(from);
  }
  void operator()(const char*, const char*& to, const std::string& from) {
    to = from.empty() ? nullptr : from.c_str();
  }
  void operator()(const char*, int32_t& to, int from) { to = from; }
  void operator()(const char*, int32_t& to, const absl::optional<bool>& from) {
    to = from.has_value() ? *from : -1;
  }
};

// Reads a C struct into the client's options.
struct OptionReader {
  absl::Status status;  // names the first field that is wrong

  void operator()(const char* name, double from, absl::Duration& to) {
    if (!(from >= 0.0)) {
      status.Update(
          FieldError(name, absl::StrCat(from), "seconds, >= 0, or infinity"));
      return;
    }
    to = absl::Seconds(from);
  }
  void operator()(const char*, const char* from, std::string& to) {
    if (from != nullptr) to = from;
  }
  void operator()(const char*, int32_t from, int& to) { to = from; }
  void operator()(const char*, int32_t from, bool& to) { to = from != 0; }
  void operator()(const char* name, int32_t from, absl::optional<bool>& to) {
    if (from < -1 || from > 1) {
      status.Update(FieldError(name, absl::StrCat(from),
                               "-1 (as push_dtype wants it), 0, 1"));
    }
    if (from >= 0) to = from != 0;
  }
};

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
  OptionWriter writer;
  ForEachOption(options, *defaults, writer);
  return options;
}

absl::StatusOr<ClientOptions> OptionsOf(const agg_options* theirs) {
  AGG_ASSIGN_OR_RETURN(const agg_options from,
                       Read("agg_options", theirs, DefaultOptions()));
  ClientOptions options;
  OptionReader reader;
  ForEachOption(from, options, reader);
  absl::Status status = reader.status;
  status.Update(CheckList("specs", from.specs, from.num_specs));
  if (from.coordinator == nullptr) {
    status.Update(FieldError("coordinator", "NULL", "host:port"));
  }
  if (!status.ok()) return status;
  for (size_t i = 0; i < from.num_specs; ++i) {
    AGG_ASSIGN_OR_RETURN(TensorSpec spec, ReadSpec(i, from.specs[i]));
    options.manifest.tensors.push_back(std::move(spec));
  }
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

absl::Status Fill(const agg_rule_round& values, agg_rule_round* round) {
  return Write("agg_rule_round", values, round);
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

namespace {

bool SamePieces(const RowView& a, const RowView& b) {
  return std::equal(
      a.pieces.begin(), a.pieces.end(), b.pieces.begin(), b.pieces.end(),
      [](const TensorPiece& x, const TensorPiece& y) {
        return x.begin == y.begin && x.num_elements == y.num_elements &&
               x.data == y.data;
      });
}

}  // namespace

void RowStore::Keep(std::vector<RowView> row) {
  MutexLock lock(&mutex_);
  if (!rows_.empty() && std::equal(row.begin(), row.end(), rows_.back().begin(),
                                   rows_.back().end(), &SamePieces)) {
    return;
  }
  rows_.push_back(std::move(row));
}

absl::StatusOr<std::vector<TensorView>> RowStore::ViewsOf(
    const uint64_t* tensors, const agg_view* views, size_t count) const {
  absl::StatusOr<std::vector<TensorView>> read = agg::ViewsOf(views, count);
  if (!read.ok()) return read;
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < count; ++i) {
    if (views[i].in_row == 0) continue;
    const uint64_t tensor = tensors == nullptr ? i : tensors[i];
    if (rows_.empty() || tensor >= rows_.back().size()) {
      return FieldError(absl::StrCat("views[", i, "].in_row"), "1",
                        rows_.empty() ? "0 before agg_row_pieces"
                                      : "1 for tensors of the manifest");
    }
    (*read)[i] = rows_.back()[tensor].view();
  }
  return read;
}

size_t FillPieces(const std::vector<RowView>& row, agg_piece* pieces,
                  size_t capacity) {
  size_t count = 0;
  for (size_t tensor = 0; tensor < row.size(); ++tensor) {
    for (const TensorPiece& piece : row[tensor].pieces) {
      if (count < capacity) {
        pieces[count] = {piece.data,
                         piece.begin,
                         piece.num_elements,
                         static_cast<uint64_t>(tensor),
                         static_cast<int32_t>(row[tensor].dtype),
                         0};
      }
      ++count;
    }
  }
  return count;
}

}  // namespace agg
