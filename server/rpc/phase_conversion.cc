// A phase's lists of numbers grow with tensors times workers, so that only they
// are cut into several messages; the rest travels with the first or last one.
#include "server/rpc/phase_conversion.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// All but the lists that may be cut.
void SetScalars(const StepPlan& step, v1::StepPlan* out) {
  out->set_per_tensor(step.per_tensor);
  out->mutable_excluded_ranks()->Add(step.excluded_ranks.begin(),
                                     step.excluded_ranks.end());
  out->set_learning_rate(step.learning_rate);
  out->set_step(static_cast<uint64_t>(step.step));
}

// The next part of `values`, with at most *room numbers; *sent counts them, and
// *room what is left.
template <typename Value, typename Field>
void AppendPart(const std::vector<Value>& values, size_t* sent, size_t* room,
                Field* field) {
  const size_t count = std::min(values.size() - *sent, *room);
  field->Add(values.begin() + *sent, values.begin() + *sent + count);
  *sent += count;
  *room -= count;
}

void AppendLists(const v1::StepPlan& step, StepPlan* out) {
  out->coefficients.insert(out->coefficients.end(), step.coefficients().begin(),
                           step.coefficients().end());
  out->tensors.insert(out->tensors.end(), step.tensors().begin(),
                      step.tensors().end());
  out->trust.insert(out->trust.end(), step.trust().begin(), step.trust().end());
}

StepPlan FromProto(const v1::StepPlan& step) {
  StepPlan result;
  result.per_tensor = step.per_tensor();
  result.excluded_ranks.assign(step.excluded_ranks().begin(),
                               step.excluded_ranks().end());
  result.learning_rate = step.learning_rate();
  result.step = static_cast<int64_t>(step.step());
  AppendLists(step, &result);
  return result;
}

// At least the encoded size of one entry.
int64_t EncodedBytes(const SliceGram& gram) {
  return static_cast<int64_t>(gram.hi.size() + gram.lo.size()) * 8 + 32;
}
constexpr int64_t kNormsBytes = 32;

}  // namespace

v1::SetSessionRequest ToProto(uint64_t epoch, const SessionChange& change) {
  v1::SetSessionRequest request;
  request.set_epoch(epoch);
  request.set_session(change.session);
  request.set_rank(change.rank);
  request.set_replaces(change.replaces);
  request.set_keep_row(change.keep_row);
  request.set_remove(change.remove);
  request.set_seed_role(change.seed_role);
  request.set_evicted(change.evicted);
  request.set_reason(change.reason);
  request.set_finished(change.finished);
  return request;
}

SessionChange FromProto(const v1::SetSessionRequest& request) {
  SessionChange change;
  change.session = request.session();
  change.rank = request.rank();
  change.replaces = request.replaces();
  change.keep_row = request.keep_row();
  change.remove = request.remove();
  change.seed_role = request.seed_role();
  change.evicted = request.evicted();
  change.reason = request.reason();
  change.finished = request.finished();
  return change;
}

namespace {

// All of a phase but the lists of its step.
v1::PhaseRequest ToProto(const Phase& phase) {
  v1::PhaseRequest request;
  request.set_epoch(phase.epoch);
  request.set_round(phase.round);
  switch (phase.kind) {
    case PhaseKind::kClose:
      request.mutable_close();
      for (const RoundRow& row : phase.rows) {
        v1::RoundRow* out = request.mutable_close()->add_rows();
        out->set_rank(row.rank);
        out->set_session(row.session);
        out->set_attempt(row.attempt);
      }
      break;
    case PhaseKind::kCompensatedGram:
      request.mutable_compensated_gram()->mutable_tensors()->Add(
          phase.tensors.begin(), phase.tensors.end());
      break;
    case PhaseKind::kNorms:
      SetScalars(phase.step, request.mutable_norms());
      break;
    case PhaseKind::kUpdate:
      SetScalars(phase.step, request.mutable_update());
      break;
    case PhaseKind::kPublish:
      request.mutable_publish()->set_version(phase.publish.version);
      request.mutable_publish()->set_unchanged(phase.publish.unchanged);
      request.mutable_publish()->set_seed(phase.publish.seed);
      request.mutable_publish()->set_seed_session(phase.publish.seed_session);
      request.mutable_publish()->set_seed_attempt(phase.publish.seed_attempt);
      break;
    case PhaseKind::kAbandon:
      request.mutable_abandon();
      break;
    default:
      break;
  }
  return request;
}

// The step of a message that goes with `kind`; null for a kind without one.
v1::StepPlan* MutableStep(PhaseKind kind, v1::PhaseRequest* request) {
  if (kind == PhaseKind::kNorms) return request->mutable_norms();
  return kind == PhaseKind::kUpdate ? request->mutable_update() : nullptr;
}

}  // namespace

bool PhaseRequests::Next(v1::PhaseRequest* request) {
  if (done_) return false;
  const bool first = coefficients_ + tensors_ + trust_ == 0;
  request->Clear();
  if (first) {
    *request = ToProto(phase_);
  } else {
    request->set_epoch(phase_.epoch);
    request->set_round(phase_.round);
  }
  done_ = true;
  v1::StepPlan* const step = MutableStep(phase_.kind, request);
  if (step == nullptr) return true;
  // No number takes more than 8 bytes on the wire.
  size_t room = static_cast<size_t>(std::max<int64_t>(1, max_bytes_ / 8));
  AppendPart(phase_.step.coefficients, &coefficients_, &room,
             step->mutable_coefficients());
  AppendPart(phase_.step.tensors, &tensors_, &room, step->mutable_tensors());
  AppendPart(phase_.step.trust, &trust_, &room, step->mutable_trust());
  done_ = coefficients_ == phase_.step.coefficients.size() &&
          tensors_ == phase_.step.tensors.size() &&
          trust_ == phase_.step.trust.size();
  request->set_more(!done_);
  return true;
}

absl::StatusOr<Phase> FromProto(const v1::PhaseRequest& request) {
  Phase phase;
  phase.epoch = request.epoch();
  phase.round = request.round();
  switch (request.phase_case()) {
    case v1::PhaseRequest::kClose:
      phase.kind = PhaseKind::kClose;
      for (const v1::RoundRow& row : request.close().rows()) {
        phase.rows.push_back({row.rank(), row.session(), row.attempt()});
      }
      return phase;
    case v1::PhaseRequest::kCompensatedGram:
      phase.kind = PhaseKind::kCompensatedGram;
      phase.tensors.assign(request.compensated_gram().tensors().begin(),
                           request.compensated_gram().tensors().end());
      return phase;
    case v1::PhaseRequest::kNorms:
      phase.kind = PhaseKind::kNorms;
      phase.step = FromProto(request.norms());
      return phase;
    case v1::PhaseRequest::kUpdate:
      phase.kind = PhaseKind::kUpdate;
      phase.step = FromProto(request.update());
      return phase;
    case v1::PhaseRequest::kPublish:
      phase.kind = PhaseKind::kPublish;
      phase.publish = {request.publish().version(),
                       request.publish().unchanged(), request.publish().seed(),
                       request.publish().seed_session(),
                       request.publish().seed_attempt()};
      return phase;
    case v1::PhaseRequest::kAbandon:
      phase.kind = PhaseKind::kAbandon;
      return phase;
    default:
      break;
  }
  return absl::InvalidArgumentError(
      "phase is none; allowed: close, compensated_gram, norms, update, "
      "publish, "
      "abandon");
}

absl::Status AppendRequest(const v1::PhaseRequest& request, Phase* phase) {
  const bool same_kind =
      (request.has_norms() && phase->kind == PhaseKind::kNorms) ||
      (request.has_update() && phase->kind == PhaseKind::kUpdate);
  if (!same_kind || request.epoch() != phase->epoch ||
      request.round() != phase->round) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a later message of a phase is of another one; allowed: norms or "
        "update of epoch ",
        phase->epoch, " and round ", phase->round, ", as the first message"));
  }
  AppendLists(request.has_norms() ? request.norms() : request.update(),
              &phase->step);
  return absl::OkStatus();
}

PhaseReplies::PhaseReplies(PhaseResult result, int64_t max_bytes)
    : result_(std::move(result)), max_bytes_(max_bytes) {}

bool PhaseReplies::Next(v1::PhaseReply* reply) {
  if (done_) return false;
  reply->Clear();
  int64_t bytes = 0;
  // Whether an entry of that many bytes goes into this message, too.
  const auto fits = [&](int64_t entry_bytes) {
    if (bytes > 0 && bytes + entry_bytes > max_bytes_) return false;
    bytes += entry_bytes;
    return true;
  };
  for (; grams_ < result_.grams.size(); ++grams_) {
    const SliceGram& gram = result_.grams[grams_];
    if (!fits(EncodedBytes(gram))) return true;
    v1::SliceGram* out = reply->add_grams();
    out->set_slice(static_cast<uint32_t>(gram.slice));
    out->mutable_hi()->Add(gram.hi.begin(), gram.hi.end());
    out->mutable_lo()->Add(gram.lo.begin(), gram.lo.end());
  }
  for (; norms_ < result_.norms.size(); ++norms_) {
    if (!fits(kNormsBytes)) return true;
    const SliceNorms& norms = result_.norms[norms_];
    v1::SliceNorms* out = reply->add_norms();
    out->set_slice(static_cast<uint32_t>(norms.slice));
    out->set_parameter_norm_squared(norms.parameter_norm_squared);
    out->set_update_norm_squared(norms.update_norm_squared);
  }
  reply->set_seconds(result_.seconds);
  reply->mutable_incomplete_ranks()->Add(result_.incomplete_ranks.begin(),
                                         result_.incomplete_ranks.end());
  reply->mutable_row_crc32c()->Add(result_.row_crc32c.begin(),
                                   result_.row_crc32c.end());
  if (result_.not_finite_slice >= 0) {
    reply->set_not_finite_slice(
        static_cast<uint32_t>(result_.not_finite_slice));
  }
  done_ = true;
  return true;
}

void AppendReply(const v1::PhaseReply& reply, const GramSink& sink,
                 PhaseResult* result) {
  for (const v1::SliceGram& gram : reply.grams()) {
    sink({static_cast<int32_t>(gram.slice()),
          {gram.hi().begin(), gram.hi().end()},
          {gram.lo().begin(), gram.lo().end()}});
  }
  for (const v1::SliceNorms& norms : reply.norms()) {
    result->norms.push_back({static_cast<int32_t>(norms.slice()),
                             norms.parameter_norm_squared(),
                             norms.update_norm_squared()});
  }
  result->seconds += reply.seconds();
  result->incomplete_ranks.insert(result->incomplete_ranks.end(),
                                  reply.incomplete_ranks().begin(),
                                  reply.incomplete_ranks().end());
  result->row_crc32c.insert(result->row_crc32c.end(),
                            reply.row_crc32c().begin(),
                            reply.row_crc32c().end());
  if (reply.has_not_finite_slice()) {
    result->not_finite_slice = static_cast<int32_t>(reply.not_finite_slice());
  }
}

}  // namespace agg
