// The states: asked for the version, writing a frame, ended. Revocation and
// cancellation may come in each of them.
#include "server/rpc/pull_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_conversion.h"
#include "server/round/round_report.h"

namespace agg {

PullStream* PullStream::Start(grpc::CallbackServerContext* context,
                              const grpc::ByteBuffer& request,
                              ShardEngine* engine, PullFrameCache* cache) {
  std::shared_ptr<PullStream> stream(new PullStream(context, engine, cache));
  stream->self_ = stream;
  const absl::StatusOr<PullQuery> query = ParsePullQuery(request);
  if (query.ok()) {
    stream->Ask(*query);
  } else {
    stream->End(query.status());
  }
  return stream.get();
}

PullStream::PullStream(grpc::CallbackServerContext* context,
                       ShardEngine* engine, PullFrameCache* cache)
    : engine_(engine),
      cache_(cache),
      canceller_(std::make_shared<CallCanceller>(context)) {}

// Both callbacks hold a weak_ptr, so one that already runs does no harm.
PullStream::~PullStream() {
  if (pull_id_ != 0) engine_->CancelPull(pull_id_);
  if (revoke_id_ != 0) version_.snapshot->RemoveRevokeCallback(revoke_id_);
}

void PullStream::Ask(const PullQuery& query) {
  dtype_ = query.dtype;
  pull_id_ = engine_->Pull(
      query.epoch, query.version, query.latest,
      [weak = weak_from_this()](absl::StatusOr<PublishedVersion> version) {
        if (auto stream = weak.lock()) stream->OnVersion(std::move(version));
      });
}

void PullStream::OnVersion(absl::StatusOr<PublishedVersion> version) {
  if (!version.ok()) return End(version.status());
  if (version->snapshot->data(dtype_) == nullptr) {
    return End(UnknownPullDType(static_cast<int>(dtype_)));
  }
  version_ = *std::move(version);
  frames_ = cache_->Get(version_, dtype_);
  WatchRevocation();
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kFinished) return;  // cancelled, or revoked already
    state_ = State::kWriting;
  }
  WriteNext();
}

// End alone is not enough if the client has stopped reading: the frame in
// flight would never be done, and hold the snapshot's memory. The canceller
// drops it, and outlives the stream for a revocation that comes late.
void PullStream::WatchRevocation() {
  revoke_id_ = version_.snapshot->AddRevokeCallback(
      [weak = weak_from_this(), canceller = canceller_, engine = engine_,
       epoch = version_.epoch, version = version_.version] {
        const ShardStatus now = engine->Status();
        const absl::Status reason = absl::AbortedError(
            now.epoch == epoch
                ? absl::StrCat("version ", version,
                               " was replaced while it was being pulled; "
                               "current version ",
                               now.version)
                : absl::StrCat("stale epoch ", epoch, "; current epoch ",
                               now.epoch, ": it began while version ", version,
                               " was being pulled"));
        if (auto stream = weak.lock()) stream->End(reason);
        canceller->Cancel(reason);
      });
}

void PullStream::WriteNext() {
  const size_t frame = next_frame_++;
  buffer_ = frames_->MakeBuffer(frame, version_);
  engine_->CountPulledBytes(frames_->payload_bytes(frame));
  if (next_frame_ < frames_->num_frames()) {
    StartWrite(&buffer_);
    return;
  }
  {
    MutexLock lock(&mutex_);
    state_ = State::kFinished;
  }
  // OnDone follows, without OnWriteDone.
  StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
}

void PullStream::End(const absl::Status& reason) {
  {
    MutexLock lock(&mutex_);
    if (end_.ok()) end_ = reason;
    if (state_ != State::kWaiting) return;  // OnWriteDone finishes, or has
    state_ = State::kFinished;
  }
  Finish(ToGrpcStatus(reason));
}

void PullStream::OnWriteDone(bool ok) {
  buffer_.Clear();  // at once: an update may wait for the memory
  absl::Status end;
  {
    MutexLock lock(&mutex_);
    if (!ok && end_.ok()) end_ = absl::CancelledError("the stream is broken");
    end = end_;
    if (!end.ok()) state_ = State::kFinished;
  }
  if (end.ok()) {
    WriteNext();
  } else {
    Finish(ToGrpcStatus(end));
  }
}

void PullStream::OnCancel() { End(absl::CancelledError("cancelled")); }

void PullStream::OnDone() { const auto self = std::move(self_); }

}  // namespace agg
