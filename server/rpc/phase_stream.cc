// Reads until the phase is complete, then writes: never both at once, so that
// no lock is needed.
#include "server/rpc/phase_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_conversion.h"

namespace agg {
namespace {

// What an update of the largest job has (proto/README.md, Limits: 512 workers,
// 100,000 tensors), and room for its other fields.
constexpr int64_t kMaxPhaseBytes = int64_t{8} * (512 + 2) * 100000;

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
  if (std::exchange(has_phase_, true)) return AppendRequest(request_, &phase_);
  absl::StatusOr<Phase> phase = FromProto(request_);
  if (!phase.ok()) return phase.status();
  phase_ = *std::move(phase);
  return absl::OkStatus();
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
