// Reads until the phase is complete, then writes: never both at once, so that
// no lock is needed.
#include "server/rpc/phase_stream.h"

#include <utility>

#include "proto/status_conversion.h"

namespace agg {
namespace {

// A checkpoint is written while rounds go on: neither may wait for the other.
bool IsForFiles(PhaseKind kind) {
  return kind == PhaseKind::kCheckpointProgress || kind == PhaseKind::kSeal ||
         kind == PhaseKind::kReadManifest || kind == PhaseKind::kVerify;
}

}  // namespace

PhaseStream* PhaseStream::Start(ShardEngine* engine,
                                const PhaseExecutors& executors) {
  auto* stream = new PhaseStream(engine, executors);
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
  } else if (engine_->IsQuick(assembly_.phase())) {
    Answer(engine_->RunPhase(assembly_.Take()));
  } else {
    Executor* const executor = IsForFiles(assembly_.phase().kind)
                                   ? executors_.files
                                   : executors_.compute;
    executor->Run([this] { Answer(engine_->RunPhase(assembly_.Take())); });
  }
}

absl::Status PhaseStream::TakeRequest() {
  const absl::Status status = assembly_.Add(request_);
  if (!status.ok() || std::exchange(has_phase_, true)) return status;
  // A phase of several messages takes memory before it is run.
  return request_.more() ? engine_->CheckEpoch(assembly_.phase().epoch)
                         : absl::OkStatus();
}

void PhaseStream::Answer(const absl::StatusOr<PhaseResult>& result) {
  if (!result.ok()) {
    Finish(ToGrpcStatus(result.status()));
    return;
  }
  replies_.emplace(*result);
  WriteNext();
}

void PhaseStream::WriteNext() {
  if (!replies_->Next(&reply_)) {
    Finish(grpc::Status::OK);
  } else if (replies_->done()) {  // with the status, in one system call
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  } else {
    StartWrite(&reply_);
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
