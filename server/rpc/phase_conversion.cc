// A phase's lists of numbers grow with tensors times workers, and so do a job's
// record and a checkpoint's text: only they are cut into several messages; the
// rest travels with the first or last one.
#include "server/rpc/phase_conversion.h"

#include <algorithm>
#include <utility>

#include "server/rpc/offer_conversion.h"
#include "server/rpc/recovery_conversion.h"

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

// The next piece of a text, likewise; 8 bytes count as a number. Whether that
// is all of it.
bool AppendPiece(const std::string& text, size_t* sent, size_t* room,
                 std::string* field) {
  const size_t count = std::min(text.size() - *sent, 8 * *room);
  field->append(text, *sent, count);
  *sent += count;
  *room -= (count + 7) / 8;
  return *sent == text.size();
}

// At least the encoded size of one entry.
int64_t EncodedBytes(const SliceGram& gram) {
  return static_cast<int64_t>(gram.hi.size() + gram.lo.size()) * 8 + 32;
}
constexpr int64_t kNormsBytes = 32;

v1::PhaseRequest::Publish ToProto(const PublishPlan& plan) {
  v1::PhaseRequest::Publish result;
  result.set_version(plan.version);
  result.set_unchanged(plan.unchanged);
  result.set_seed(plan.seed);
  result.set_seed_session(plan.seed_session);
  result.set_seed_attempt(plan.seed_attempt);
  return result;
}

void SetUpdate(const Phase& phase, v1::PhaseRequest* request) {
  SetScalars(phase.step, request->mutable_update());
  SetScalars(phase.replica_step, request->mutable_replica_step());
  request->set_unchanged(phase.publish.unchanged);
  if (phase.publishes) request->set_publish_version(phase.publish.version);
}

v1::PhaseRequest::Seal SealOf(const Phase& phase) {
  v1::PhaseRequest::Seal seal;
  seal.set_keep(phase.keep);
  seal.set_line(phase.line);
  seal.set_begins_anew(phase.begins_anew);
  if (phase.checkpoint.empty() && !phase.begins_anew) {
    *seal.mutable_discard() = ToProto(phase.id);
  }
  return seal;
}

// The phases of a round, and of the seed.
void SetRound(const Phase& phase, v1::PhaseRequest* request) {
  switch (phase.kind) {
    case PhaseKind::kClose:
      AddRows(phase.rows, request->mutable_close()->mutable_rows());
      break;
    case PhaseKind::kCompensatedGram:
      request->mutable_compensated_gram()->mutable_tensors()->Add(
          phase.tensors.begin(), phase.tensors.end());
      break;
    case PhaseKind::kNorms:
      SetScalars(phase.step, request->mutable_norms());
      break;
    case PhaseKind::kUpdate:
      SetUpdate(phase, request);
      break;
    case PhaseKind::kPublish:
      *request->mutable_publish() = ToProto(phase.publish);
      break;
    case PhaseKind::kAbandon:
      request->mutable_abandon();
      break;
    case PhaseKind::kLoadSeed:
      request->mutable_load_seed()->set_seed_session(
          phase.publish.seed_session);
      request->mutable_load_seed()->set_seed_attempt(
          phase.publish.seed_attempt);
      break;
    default:
      break;
  }
}

// All of a phase but its lists and texts that may be cut.
v1::PhaseRequest ToProto(const Phase& phase) {
  v1::PhaseRequest request;
  request.set_epoch(phase.epoch);
  request.set_round(phase.round);
  request.set_wave(static_cast<uint32_t>(phase.wave));
  if (phase.kind != PhaseKind::kClose) {
    AddRows(phase.rows, request.mutable_offered_rows());
  }
  switch (phase.kind) {
    case PhaseKind::kRecover:
      *request.mutable_recover() = ToProto(phase.recover);
      break;
    case PhaseKind::kFetch:
      *request.mutable_fetch() = ToProto(phase.id);
      break;
    case PhaseKind::kOpen:
      *request.mutable_open() = ToProto(phase.id);
      break;
    case PhaseKind::kCapture:
      *request.mutable_capture() = ToProto(phase.id);
      break;
    case PhaseKind::kCheckpointProgress:
      request.mutable_checkpoint_progress();
      break;
    case PhaseKind::kReadManifest:
      *request.mutable_read_manifest() = ToProto(phase.id);
      break;
    case PhaseKind::kVerify:
      request.mutable_verify();
      break;
    case PhaseKind::kSeal:
      *request.mutable_seal() = SealOf(phase);
      break;
    default:
      SetRound(phase, &request);
      break;
  }
  return request;
}

// The step of a message that goes with `kind`; null for a kind without one.
v1::StepPlan* MutableStep(PhaseKind kind, v1::PhaseRequest* request) {
  if (kind == PhaseKind::kNorms) return request->mutable_norms();
  return kind == PhaseKind::kUpdate ? request->mutable_update() : nullptr;
}

// Where a message of `kind` has the text of a checkpoint; null for a kind
// without one.
std::string* MutableCheckpoint(PhaseKind kind, v1::PhaseRequest* request) {
  if (kind == PhaseKind::kRecover) {
    return request->mutable_recover()->mutable_checkpoint();
  }
  if (kind == PhaseKind::kVerify) {
    return request->mutable_verify()->mutable_checkpoint();
  }
  return kind == PhaseKind::kSeal
             ? request->mutable_seal()->mutable_checkpoint()
             : nullptr;
}

}  // namespace

bool StepParts::Append(const StepPlan& step, size_t* room, v1::StepPlan* out) {
  AppendPart(step.coefficients, &coefficients_, room,
             out->mutable_coefficients());
  AppendPart(step.tensors, &tensors_, room, out->mutable_tensors());
  AppendPart(step.trust, &trust_, room, out->mutable_trust());
  return coefficients_ == step.coefficients.size() &&
         tensors_ == step.tensors.size() && trust_ == step.trust.size();
}

bool PhaseRequests::Next(v1::PhaseRequest* request) {
  if (done_) return false;
  request->Clear();
  if (std::exchange(first_, false)) {
    *request = ToProto(phase_);
  } else {
    request->set_epoch(phase_.epoch);
    request->set_round(phase_.round);
  }
  done_ = true;
  // No number takes more than 8 bytes on the wire.
  size_t room = static_cast<size_t>(std::max<int64_t>(1, max_bytes_ / 8));
  if (v1::StepPlan* const step = MutableStep(phase_.kind, request)) {
    done_ &= step_.Append(phase_.step, &room, step);
  }
  if (phase_.kind == PhaseKind::kUpdate) {
    done_ &= replica_step_.Append(phase_.replica_step, &room,
                                  request->mutable_replica_step());
  }
  if (std::string* const text = MutableCheckpoint(phase_.kind, request)) {
    done_ &= AppendPiece(phase_.checkpoint, &checkpoint_, &room, text);
  }
  if (phase_.record != nullptr && !phase_.record->empty()) {
    done_ &=
        AppendPiece(*phase_.record, &record_, &room, request->mutable_record());
  }
  request->set_more(!done_);
  return true;
}

PhaseReplies::PhaseReplies(PhaseResult result, int64_t max_bytes)
    : result_(std::move(result)), max_bytes_(max_bytes) {}

bool PhaseReplies::AddSlices(v1::PhaseReply* reply, int64_t* bytes) {
  // Whether an entry of that many bytes goes into this message, too.
  const auto fits = [&](int64_t entry_bytes) {
    if (*bytes > 0 && *bytes + entry_bytes > max_bytes_) return false;
    *bytes += entry_bytes;
    return true;
  };
  for (; grams_ < result_.grams.size(); ++grams_) {
    const SliceGram& gram = result_.grams[grams_];
    if (!fits(EncodedBytes(gram))) return false;
    v1::SliceGram* out = reply->add_grams();
    out->set_slice(static_cast<uint32_t>(gram.slice));
    out->mutable_hi()->Add(gram.hi.begin(), gram.hi.end());
    out->mutable_lo()->Add(gram.lo.begin(), gram.lo.end());
  }
  for (; norms_ < result_.norms.size(); ++norms_) {
    if (!fits(kNormsBytes)) return false;
    const SliceNorms& norms = result_.norms[norms_];
    v1::SliceNorms* out = reply->add_norms();
    out->set_slice(static_cast<uint32_t>(norms.slice));
    out->set_parameter_norm_squared(norms.parameter_norm_squared);
    out->set_update_norm_squared(norms.update_norm_squared);
  }
  return true;
}

void PhaseReplies::AddRest(v1::PhaseReply* reply) const {
  reply->set_seconds(result_.seconds);
  reply->mutable_incomplete_ranks()->Add(result_.incomplete_ranks.begin(),
                                         result_.incomplete_ranks.end());
  reply->mutable_row_crc32c()->Add(result_.row_crc32c.begin(),
                                   result_.row_crc32c.end());
  if (result_.not_finite_slice >= 0) {
    reply->set_not_finite_slice(
        static_cast<uint32_t>(result_.not_finite_slice));
  }
  const NarrowingLoss& loss = result_.narrowing;
  if (loss.slice >= 0 || loss.num_compared > 0) {
    v1::NarrowingLoss* const narrowing = reply->mutable_narrowing();
    if (loss.slice >= 0) {
      narrowing->set_slice(static_cast<uint32_t>(loss.slice));
    }
    narrowing->set_num_infinite(loss.num_infinite);
    narrowing->set_num_compared(loss.num_compared);
    narrowing->set_num_vanished(loss.num_vanished);
  }
  reply->set_published(result_.published);
  if (result_.checkpoint.stage != CheckpointProgress::Stage::kNone ||
      result_.checkpoint.num_skipped > 0) {
    *reply->mutable_checkpoint() = ToProto(result_.checkpoint);
  }
}

bool PhaseReplies::Next(v1::PhaseReply* reply) {
  if (done_) return false;
  reply->Clear();
  int64_t bytes = 0;
  if (!AddSlices(reply, &bytes)) return true;
  size_t room =
      static_cast<size_t>(std::max<int64_t>(1, (max_bytes_ - bytes) / 8));
  if (!result_.manifest.empty() &&
      !AppendPiece(result_.manifest, &manifest_, &room,
                   reply->mutable_manifest())) {
    return true;
  }
  AddRest(reply);
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
  result->manifest.append(reply.manifest());
  result->incomplete_ranks.insert(result->incomplete_ranks.end(),
                                  reply.incomplete_ranks().begin(),
                                  reply.incomplete_ranks().end());
  result->row_crc32c.insert(result->row_crc32c.end(),
                            reply.row_crc32c().begin(),
                            reply.row_crc32c().end());
  if (reply.has_not_finite_slice()) {
    result->not_finite_slice = static_cast<int32_t>(reply.not_finite_slice());
  }
  if (reply.has_narrowing()) {
    const v1::NarrowingLoss& loss = reply.narrowing();
    result->narrowing = {
        loss.has_slice() ? static_cast<int32_t>(loss.slice()) : -1,
        loss.num_infinite(), loss.num_compared(), loss.num_vanished()};
  }
  result->published |= reply.published();
  if (reply.has_checkpoint()) {
    result->checkpoint = FromProto(reply.checkpoint());
  }
}

}  // namespace agg
