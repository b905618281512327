// A large result becomes several messages, so that none exceeds gRPC's
// limit, whatever the number of slices.
#include "server/rpc/phase_conversion.h"

#include "absl/status/status.h"

namespace agg {
namespace {

void ToProto(const StepPlan& step, v1::StepPlan* out) {
  out->set_per_tensor(step.per_tensor);
  out->mutable_coefficients()->Add(step.coefficients.begin(),
                                   step.coefficients.end());
  out->mutable_excluded_ranks()->Add(step.excluded_ranks.begin(),
                                     step.excluded_ranks.end());
  out->set_learning_rate(step.learning_rate);
  out->set_step(static_cast<uint64_t>(step.step));
  out->mutable_trust()->Add(step.trust.begin(), step.trust.end());
}

StepPlan FromProto(const v1::StepPlan& step) {
  StepPlan result;
  result.per_tensor = step.per_tensor();
  result.coefficients.assign(step.coefficients().begin(),
                             step.coefficients().end());
  result.excluded_ranks.assign(step.excluded_ranks().begin(),
                               step.excluded_ranks().end());
  result.learning_rate = step.learning_rate();
  result.step = static_cast<int64_t>(step.step());
  result.trust.assign(step.trust().begin(), step.trust().end());
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
      ToProto(phase.step, request.mutable_norms());
      break;
    case PhaseKind::kUpdate:
      ToProto(phase.step, request.mutable_update());
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
  }
  return request;
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
    case v1::PhaseRequest::PHASE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "phase is none; allowed: close, compensated_gram, norms, update, "
      "publish, "
      "abandon");
}

std::vector<v1::PhaseReply> ToProto(const PhaseResult& result) {
  std::vector<v1::PhaseReply> replies(1);
  int64_t bytes = 0;
  const auto reply_for = [&](int64_t entry_bytes) {
    if (bytes > 0 && bytes + entry_bytes > kMaxReplyBytes) {
      replies.emplace_back();
      bytes = 0;
    }
    bytes += entry_bytes;
    return &replies.back();
  };
  for (const SliceGram& gram : result.grams) {
    v1::SliceGram* out = reply_for(EncodedBytes(gram))->add_grams();
    out->set_slice(static_cast<uint32_t>(gram.slice));
    out->mutable_hi()->Add(gram.hi.begin(), gram.hi.end());
    out->mutable_lo()->Add(gram.lo.begin(), gram.lo.end());
  }
  for (const SliceNorms& norms : result.norms) {
    v1::SliceNorms* out = reply_for(kNormsBytes)->add_norms();
    out->set_slice(static_cast<uint32_t>(norms.slice));
    out->set_parameter_norm_squared(norms.parameter_norm_squared);
    out->set_update_norm_squared(norms.update_norm_squared);
  }
  replies.back().set_seconds(result.seconds);
  replies.back().mutable_incomplete_ranks()->Add(
      result.incomplete_ranks.begin(), result.incomplete_ranks.end());
  replies.back().mutable_row_crc32c()->Add(result.row_crc32c.begin(),
                                           result.row_crc32c.end());
  if (result.not_finite_slice >= 0) {
    replies.back().set_not_finite_slice(
        static_cast<uint32_t>(result.not_finite_slice));
  }
  return replies;
}

void AppendReply(const v1::PhaseReply& reply, PhaseResult* result) {
  for (const v1::SliceGram& gram : reply.grams()) {
    result->grams.push_back({static_cast<int32_t>(gram.slice()),
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
