// Reads until the phase is complete, then writes: never both at once, so that
// no lock is needed.
#include "server/rpc/phase_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_conversion.h"

namespace agg {
namespace {

// Of the largest job (proto/README.md, Limits).
constexpr int64_t kMaxTensors = 100000;
constexpr int64_t kMaxWorkers = 512;
// What an update of it has, and room for its other fields.
constexpr int64_t kMaxPhaseBytes = 8 * (kMaxWorkers + 2) * kMaxTensors;

// A varint of one byte becomes a number of four.
absl::Status CheckSize(const StepPlan& step) {
  if (static_cast<int64_t>(step.tensors.size()) <= kMaxTensors &&
      static_cast<int64_t>(step.trust.size()) <= kMaxTensors &&
      static_cast<int64_t>(step.excluded_ranks.size()) <= kMaxWorkers &&
      static_cast<int64_t>(step.coefficients.size()) <=
          kMaxTensors * kMaxWorkers) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "a step has ", step.tensors.size(), " tensors, ", step.trust.size(),
      " trust ratios, ", step.excluded_ranks.size(), " excluded ranks and ",
      step.coefficients.size(), " coefficients; allowed: of ", kMaxTensors,
      " tensors and ", kMaxWorkers, " workers at most"));
}

}  // namespace

PhaseStream* PhaseStream::Start(ShardEngine* engine, Executor* executor) {
  auto* stream = new PhaseStream(engine, executor);
  stream->StartRead(&stream->request_);
  return stream;
}

void PhaseStream::OnReadDone(bool ok) {
  const absl::Status status =
      ok ? TakeRequest()
         : absl::InvalidArgumentError(
               "the phase has ended before its last message");
  if (!status.ok()) {
    Finish(ToGrpcStatus(status));
  } else if (request_.more()) {
    StartRead(&request_);
  } else {
    executor_->Run([this] { Answer(engine_->RunPhase(phase_)); });
  }
}

absl::Status PhaseStream::TakeRequest() {
  phase_bytes_ += static_cast<int64_t>(request_.ByteSizeLong());
  if (phase_bytes_ > kMaxPhaseBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the phase has more than ", kMaxPhaseBytes, " bytes"));
  }
  if (std::exchange(has_phase_, true)) {
    const absl::Status status = AppendRequest(request_, &phase_);
    return status.ok() ? CheckSize(phase_.step) : status;
  }
  absl::StatusOr<Phase> phase = FromProto(request_);
  if (!phase.ok()) return phase.status();
  phase_ = *std::move(phase);
  // A phase of several messages takes memory before it is run.
  const absl::Status status =
      request_.more() ? engine_->CheckEpoch(phase_.epoch) : absl::OkStatus();
  return status.ok() ? CheckSize(phase_.step) : status;
}

void PhaseStream::Answer(const absl::StatusOr<PhaseResult>& result) {
  phase_ = Phase();  // its coefficients are of no more use
  if (!result.ok()) {
    Finish(ToGrpcStatus(result.status()));
    return;
  }
  replies_.emplace(*result);
  WriteNext();
}

void PhaseStream::WriteNext() {
  if (replies_->Next(&reply_)) {
    StartWrite(&reply_);
  } else {
    Finish(grpc::Status::OK);
  }
}

void PhaseStream::OnWriteDone(bool ok) {
  if (ok) {
    WriteNext();
  } else {
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled"));
  }
}

}  // namespace agg
