// The long-lived Push stream to one shard. Apart from RowPusher because its
// states are those of one gRPC call, whatever is pushed.
#ifndef AGG_WORKER_CLIENT_SHARD_STREAM_H_
#define AGG_WORKER_CLIENT_SHARD_STREAM_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <array>
#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/agg.pb.h"
#include "proto/byte_buffer_frame.h"
#include "server/base/dcheck.h"
#include "worker_client/frame_source.h"
#include "worker_client/parameter_sink.h"
#include "worker_client/retry.h"

namespace agg {

// A state machine on a completion queue that the owner polls: every tag that
// comes out of the queue is an Event whose Run(ok) moves it on. One push at a
// time; the stream is opened when needed and stays open between pushes.
// Not thread-safe: one thread polls and calls.
class ShardStream {
 public:
  // Comes out of the completion queue as the tag.
  struct Event {
    ShardStream* stream = nullptr;
    void (ShardStream::*handler)(bool ok) = nullptr;
    void Run(bool ok) { (stream->*handler)(ok); }
  };

  enum class State {
    kIdle,          // nothing to send
    kPushing,       // waiting for the acknowledgement
    kAcknowledged,  // landed; closed(): dropped, since its round is closed
    kBroken,        // the call is over: status(); a new StartPush reopens it
  };

  // A round in one trip (P41), as far as this shard has a part in it.
  struct Trip {
    ParameterSink* sink = nullptr;  // takes the version's frames
    bool commits = false;           // the outcome comes from here
    absl::optional<v1::RoundOutcome> outcome;
    bool pulled = false;  // the whole version has landed
    bool failed = false;  // a frame of it was bad: no more are taken
    // The shard has acknowledged the row as if nothing else had been asked.
    bool passed_over = false;
  };

  // REQUIRES: queue and cancel outlive this.
  ShardStream(ShardName name, std::shared_ptr<grpc::Channel> channel,
              grpc::CompletionQueue* queue, CancelSource* cancel);
  // REQUIRES: Drained().
  ~ShardStream() { AGG_DCHECK(Drained()); }
  ShardStream(const ShardStream&) = delete;
  ShardStream& operator=(const ShardStream&) = delete;

  // Sends the frames that the source has, from its first, until one cannot be
  // made; it must live until the state is kAcknowledged or kBroken. `meta`
  // identifies the acknowledgement. With `trip`, which must live as long, the
  // source's frames ask for one: kAcknowledged is then when all of it has come.
  // REQUIRES: not kPushing.
  void StartPush(FrameSource* source, const v1::FrameMeta& meta,
                 Trip* trip = nullptr);
  // Whether the source's frames are with gRPC, so that it may get more.
  // REQUIRES: kPushing.
  bool starved() const {
    AGG_DCHECK(state_ == State::kPushing);
    return next_frame_ == source_->num_frames() &&
           (call_ == nullptr || !call_->writing);
  }
  // Goes on after the source got more.
  void Continue();

  // Asks gRPC to end the call: kBroken when its last event has run.
  void Cancel();

  State state() const { return state_; }
  // Why the call ended, when kBroken.
  const grpc::Status& status() const { return status_; }
  // How long the call that is over had a connection, when kBroken.
  absl::Duration connected() const { return connected_; }
  const ShardName& name() const { return name_; }
  bool closed() const { return closed_; }
  // Whether no more events will come.
  bool Drained() const { return pending_events_ == 0; }

 private:
  // One call. A failed one is replaced completely.
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    absl::optional<CancelSource::Registration> registration;
    // When StartCall was done, which takes a connection; InfiniteFuture: not
    // yet.
    absl::Time connected_at = absl::InfiniteFuture();
    bool writing = false;
    bool ending = false;  // something failed: no more reads and writes
    bool finishing = false;
  };

  void Open();
  void WriteNext();
  void Read();
  // Whether it is about the push in progress.
  bool Names(const v1::PushAck& ack) const;
  void TakeTrip(const v1::PushAck& ack, FrameReader* reader);
  // Asks for the status once reads and writes are over.
  void MaybeFinish();

  void OnStarted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);

  // The tag of an operation; counts its event as pending.
  void* Tag(Event* event);

  const ShardName name_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue* const queue_;
  CancelSource* const cancel_;
  Event started_, read_, written_, finished_;

  State state_ = State::kIdle;
  bool closed_ = false;
  grpc::Status status_;
  absl::Duration connected_;
  int pending_events_ = 0;
  std::unique_ptr<Call> call_;
  bool reading_ = false;
  grpc::ByteBuffer incoming_;
  FrameSource* source_ = nullptr;
  v1::FrameMeta meta_;
  Trip* trip_ = nullptr;
  int next_frame_ = 0;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_SHARD_STREAM_H_
