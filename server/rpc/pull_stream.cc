// The states: asked for the version or waiting for its bytes, writing a frame,
// ended. Revocation and cancellation may come in each of them.
#include "server/rpc/pull_stream.h"

#include <optional>
#include <utility>

#include "proto/status_conversion.h"

namespace agg {

PullStream* PullStream::Start(grpc::CallbackServerContext* context,
                              const grpc::ByteBuffer& request,
                              ShardEngine* engine, PullFrameCache* cache,
                              std::shared_ptr<OvertakenReaders> overtaken,
                              const std::string& who) {
  std::shared_ptr<PullStream> stream(new PullStream(context, engine, cache));
  stream->self_ = stream;
  stream->overtaken_ = std::move(overtaken);
  stream->reader_.who = who;
  stream->reader_.peer = context->peer();
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

// Its callback holds a weak_ptr, so one that already runs does no harm.
PullStream::~PullStream() {
  if (pull_id_ != 0) engine_->CancelPull(pull_id_);
}

void PullStream::Ask(const PullQuery& query) {
  dtype_ = query.dtype;
  first_slices_ = query.first_slices;
  if (query.in_place) {
    form_ = query.on_device ? FrameForm::kDevicePlace : FrameForm::kPlace;
  }
  pull_id_ = engine_->Pull(
      query.epoch, query.version, query.latest,
      [weak = weak_from_this()](absl::StatusOr<PublishedVersion> version) {
        if (auto stream = weak.lock()) stream->OnVersion(std::move(version));
      });
}

// When the version is revoked End alone is not enough if the client has stopped
// reading: the frame in flight would never be done. The canceller has what is
// behind it dropped, and outlives the stream for a revocation that comes late.
VersionFlow::Events PullStream::Events(uint64_t version) {
  VersionFlow::Events events;
  events.revoked = [weak = weak_from_this(),
                    canceller = canceller_](const absl::Status& reason) {
    if (auto stream = weak.lock()) stream->End(reason);
    canceller->Cancel(reason);
  };
  reader_.version = version;
  events.overtaken = [engine = engine_, overtaken = overtaken_,
                      reader = reader_](bool cut) mutable {
    engine->CountOvertakenPull();
    reader.cut = cut;
    if (overtaken != nullptr) overtaken->Note(reader);
  };
  return events;
}

void PullStream::OnVersion(absl::StatusOr<PublishedVersion> version) {
  if (!version.ok()) return End(version.status());
  if (version->snapshot->data(dtype_) == nullptr) {
    return End(UnknownPullDType(static_cast<int>(dtype_)));
  }
  flow_ =
      std::make_unique<VersionFlow>(engine_, cache_, *version, dtype_, form_,
                                    first_slices_, Events(version->version));
  if (flow_->on_device()) return OnReadable(absl::OkStatus());
  // Also of shared memory nobody hears before its bytes are there.
  version->snapshot->WhenReadable(
      dtype_, [weak = weak_from_this()](const absl::Status& status) {
        if (auto stream = weak.lock()) stream->OnReadable(status);
      });
}

void PullStream::OnReadable(const absl::Status& status) {
  if (!status.ok()) return End(status);
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kFinished) return;  // cancelled, or revoked already
    state_ = State::kWriting;
  }
  WriteNext();
}

void PullStream::WriteNext() {
  std::optional<grpc::ByteBuffer> frame = flow_->Next();
  if (!frame.has_value()) {  // revoked: End comes, or has come
    absl::Status end;
    {
      MutexLock lock(&mutex_);
      state_ = end_.ok() ? State::kWaiting : State::kFinished;
      end = end_;
    }
    if (!end.ok()) Finish(ToGrpcStatus(end));
    return;
  }
  buffer_ = *std::move(frame);
  // Who reads in place keeps the version until the call ends.
  if (!flow_->done() || flow_->in_place()) {
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
  bool done;
  {
    MutexLock lock(&mutex_);
    if (end_.ok()) end_ = reason;
    // Else OnWriteDone finishes, or has.
    if (state_ != State::kWaiting && state_ != State::kHolding) return;
    // A reader in place says so that it is done.
    done = state_ == State::kHolding && absl::IsCancelled(reason);
    state_ = State::kFinished;
  }
  Finish(done ? grpc::Status::OK : ToGrpcStatus(reason));
}

void PullStream::OnWriteDone(bool ok) {
  buffer_.Clear();  // at once: an update may want the memory
  if (ok && overtaken_ != nullptr) overtaken_->NoteTaken();
  absl::Status end;
  {
    MutexLock lock(&mutex_);
    if (!ok && end_.ok()) end_ = absl::CancelledError("the stream is broken");
    end = end_;
    if (!end.ok()) {
      state_ = State::kFinished;
    } else if (flow_->done()) {  // in place; others end with the last frame
      state_ = State::kHolding;
      return;
    }
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
