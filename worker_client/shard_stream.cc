// The events of one call: started, written, read, finished. At most one
// write and one read are under way.
#include "worker_client/shard_stream.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "server/base/dcheck.h"
#include "server/base/local_socket.h"

namespace agg {
namespace {

constexpr char kPushMethod[] = "/agg.v1.Shard/Push";

}  // namespace

ShardStream::ShardStream(ShardName name, std::shared_ptr<grpc::Channel> channel,
                         grpc::CompletionQueue* queue, CancelSource* cancel)
    : name_(std::move(name)),
      stub_(std::move(channel)),
      queue_(queue),
      cancel_(cancel),
      started_{this, &ShardStream::OnStarted},
      read_{this, &ShardStream::OnRead},
      written_{this, &ShardStream::OnWritten},
      finished_{this, &ShardStream::OnFinished} {}

void* ShardStream::Tag(Event* event) {
  ++pending_events_;
  return event;
}

void ShardStream::StartPush(FrameSource* source, const v1::FrameMeta& meta,
                            Trip* trip) {
  AGG_DCHECK(state_ != State::kPushing);
  source_ = source;
  trip_ = trip;
  closed_ = false;
  meta_ = meta;
  next_frame_ = 0;
  state_ = State::kPushing;
  if (call_ == nullptr) {
    Open();
  } else {
    WriteNext();
  }
}

void ShardStream::Continue() {
  if (call_ != nullptr) WriteNext();
}

void ShardStream::Open() {
  status_ = grpc::Status::OK;
  call_ = std::make_unique<Call>();
  call_->registration.emplace(cancel_, &call_->context);
  call_->stream = stub_.PrepareCall(&call_->context, kPushMethod, queue_);
  call_->stream->StartCall(Tag(&started_));
}

void ShardStream::Cancel() {
  if (call_ != nullptr) call_->context.TryCancel();
}

void ShardStream::OnStarted(bool ok) {
  --pending_events_;
  if (ok) {
    call_->connected_at = absl::Now();
    if (absl::StartsWith(call_->context.peer(), "unix")) WidenLocalBuffers();
  } else {
    call_->ending = true;
  }
  Read();
  WriteNext();
  MaybeFinish();
}

void ShardStream::Read() {
  if (call_->ending) return;
  reading_ = true;
  call_->stream->Read(&incoming_, Tag(&read_));
}

void ShardStream::WriteNext() {
  const bool ready = call_->connected_at != absl::InfiniteFuture();
  if (!ready || call_->ending || call_->writing) return;
  if (state_ != State::kPushing || next_frame_ == source_->num_frames()) return;
  if (closed_) return;  // the shard would drop the rest
  const absl::StatusOr<grpc::ByteBuffer> frame = source_->Make(next_frame_);
  if (!frame.ok()) return;  // the source says it to who ends the push
  ++next_frame_;
  call_->writing = true;
  call_->stream->Write(*frame, Tag(&written_));
}

void ShardStream::OnWritten(bool ok) {
  --pending_events_;
  call_->writing = false;
  if (!ok) call_->ending = true;
  WriteNext();
  MaybeFinish();
}

void ShardStream::OnRead(bool ok) {
  --pending_events_;
  reading_ = false;
  if (!ok) {
    call_->ending = true;
    MaybeFinish();
    return;
  }
  v1::PushAck ack;
  FrameReader reader;
  const bool parsed = reader.InitAck(incoming_, &ack).ok();
  incoming_.Clear();
  if (parsed && state_ == State::kPushing) {
    if (trip_ != nullptr) {
      TakeTrip(ack, &reader);
    } else if (Names(ack) && !ack.has_outcome()) {
      state_ = State::kAcknowledged;
      closed_ = ack.closed();
    }
  }
  Read();
}

bool ShardStream::Names(const v1::PushAck& ack) const {
  // Acknowledgements of earlier pushes are ignored: a retried push may get one
  // for each copy. That of this push may come before all frames are sent: then
  // the round is closed, and the server would drop the rest.
  return ack.epoch() == meta_.epoch() && ack.round() == meta_.round() &&
         ack.kind() == meta_.kind() && ack.attempt() == meta_.attempt();
}

void ShardStream::TakeTrip(const v1::PushAck& ack, FrameReader* reader) {
  if (ack.has_meta()) {
    if (trip_->failed) return;
    absl::Status landed = trip_->sink->Land(name_.ordinal, reader);
    if (landed.ok() && ack.last()) {
      landed = trip_->sink->CheckComplete(name_.ordinal);
      trip_->pulled = landed.ok();
    }
    // Nothing more of it is of use; the version is pulled again.
    trip_->failed = !landed.ok();
    if (trip_->failed) call_->context.TryCancel();
  } else if (Names(ack)) {
    if (ack.has_outcome()) {
      trip_->outcome = ack.outcome();
    } else if (ack.closed()) {
      closed_ = true;  // what was asked for comes all the same
    } else {
      trip_->passed_over = true;
    }
  }
  if (trip_->passed_over ||
      (trip_->pulled && (trip_->outcome.has_value() || !trip_->commits))) {
    state_ = State::kAcknowledged;
  }
}

void ShardStream::MaybeFinish() {
  if (!call_->ending || call_->writing || reading_ || call_->finishing) return;
  call_->finishing = true;
  call_->stream->Finish(&status_, Tag(&finished_));
}

void ShardStream::OnFinished(bool /*ok*/) {
  --pending_events_;
  // A push has no use for a stream that ended without an error, either.
  if (status_.ok()) {
    status_ = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                           "the shard closed the push stream");
  }
  // Not connected at all: the difference is negative.
  connected_ =
      std::max(absl::ZeroDuration(), absl::Now() - call_->connected_at);
  call_.reset();
  // An acknowledged push is complete; the next one opens a new call.
  if (state_ == State::kPushing) state_ = State::kBroken;
}

}  // namespace agg
