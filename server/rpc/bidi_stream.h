// The common part of our bidirectional reactors: queued writes, one end, and a
// life that lasts as long as a reference on it.
#ifndef AGG_SERVER_RPC_BIDI_STREAM_H_
#define AGG_SERVER_RPC_BIDI_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/status_conversion.h"
#include "server/base/mutex.h"

namespace agg {

// The streams that are open on this server, so that a drain can end them.
// Thread-safe. Every `end` is called with no lock held and at most once. It may
// still run when Remove returns, so it must not rely on the stream's life.
class OpenStreams {
 public:
  using End = std::function<void(const absl::Status&)>;

  // Returns an id for Remove. After EndAll, `end` is called at once.
  int64_t Add(End end);
  void Remove(int64_t id);
  // Ends all streams, and all later ones, with `reason`.
  void EndAll(const absl::Status& reason);

 private:
  Mutex mutex_;
  std::map<int64_t, End> streams_ ABSL_GUARDED_BY(mutex_);
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);  // OK: not ended
};

// Messages go out in the order of Send, then the status of the first End; a
// message that is sent after End is dropped. While none is queued a stream may
// make messages itself (MakeMessage). gRPC is called with no lock held, with
// one write in flight, and Finish only when none is. The stream owns itself
// until OnDone; others keep a weak_ptr, and may call Send, End and Wake at any
// time.
template <typename Request, typename Response>
class BidiStream
    : public grpc::ServerBidiReactor<Request, Response>,
      public std::enable_shared_from_this<BidiStream<Request, Response>> {
 public:
  // Thread-safe.
  void Send(Response response) {
    {
      MutexLock lock(&mutex_);
      if (ended_) return;
      queue_.push_back(std::move(response));
      // A peer that writes and never reads must not make us buffer for it.
      if (queue_.size() > kMaxQueued) {
        ended_ = true;
        status_ = absl::ResourceExhaustedError("the stream is not being read");
        queue_.resize(1);
      }
    }
    Pump();
  }

  // MakeMessage may have a message now. Thread-safe.
  void Wake() {
    {
      MutexLock lock(&mutex_);
      woken_ = true;
    }
    Pump();
  }

  // Thread-safe; the first End counts.
  void End(const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      if (ended_) return;
      ended_ = true;
      status_ = status;
    }
    Pump();
  }

 protected:
  explicit BidiStream(OpenStreams* open) : open_(open) {}

  // Must be called by the factory, right after it has made the shared_ptr.
  void Own() {
    self_ = this->shared_from_this();
    std::weak_ptr<BidiStream> weak = self_;
    open_id_ = open_->Add([weak](const absl::Status& reason) {
      if (auto stream = weak.lock()) stream->EndForAll(reason);
    });
  }

  bool ended() {
    MutexLock lock(&mutex_);
    return ended_;
  }

  // All streams of this process end. What is sent here is the last message.
  virtual void EndForAll(const absl::Status& reason) { End(reason); }

  // The next message that is not sent by Send; nothing: none is ready, until
  // the next Wake. Called with no write in flight, by one thread at a time.
  virtual std::optional<Response> MakeMessage() { return std::nullopt; }
  // A message has been written. Called by one thread at a time.
  virtual void OnWritten() {}

  // Called once, after the RPC's end, whatever the reason.
  virtual void OnEnded() {}

 private:
  static constexpr size_t kMaxQueued = 1024;

  void OnWriteDone(bool ok) final {
    if (ok) OnWritten();
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      queue_.pop_front();
      if (!ok) {  // the call is dead: nothing more can be said
        queue_.clear();
        if (!ended_) status_ = absl::CancelledError("the stream is broken");
        ended_ = true;
      }
    }
    Pump();
  }

  void OnCancel() final { End(absl::CancelledError("cancelled")); }

  void OnDone() final {
    open_->Remove(open_id_);
    OnEnded();
    const auto self = std::move(self_);
  }

  // What is to be done next, unless a write is in flight or being made.
  enum class Step { kNothing, kWrite, kFinish, kMake };
  Step NextStep() {
    MutexLock lock(&mutex_);
    if (writing_ || finished_) return Step::kNothing;
    if (!queue_.empty()) {
      writing_ = true;
      return Step::kWrite;
    }
    if (ended_) {
      finished_ = true;
      return Step::kFinish;
    }
    if (!woken_) return Step::kNothing;
    woken_ = false;
    writing_ = true;
    return Step::kMake;
  }

  // Whether there is a message, which is at the front of the queue then.
  bool Make() {
    std::optional<Response> made = MakeMessage();
    MutexLock lock(&mutex_);
    if (!made.has_value() || ended_) {
      writing_ = false;
      return false;
    }
    woken_ = true;  // there may be another one
    queue_.push_front(std::move(*made));
    return true;
  }

  absl::Status status() {
    MutexLock lock(&mutex_);
    return status_;
  }

  // The message in flight; deque: it stays put while others are queued.
  const Response* front() {
    MutexLock lock(&mutex_);
    return &queue_.front();
  }

  // Starts the next write, or the finish, unless one is in flight.
  void Pump() {
    for (;;) {
      const Step step = NextStep();
      if (step == Step::kNothing) return;
      if (step == Step::kFinish) return this->Finish(ToGrpcStatus(status()));
      if (step == Step::kWrite || Make()) {
        this->StartWrite(front());
        return;
      }
    }
  }

  OpenStreams* const open_;
  int64_t open_id_ = 0;
  std::shared_ptr<BidiStream> self_;
  Mutex mutex_;
  std::deque<Response> queue_ ABSL_GUARDED_BY(mutex_);  // front: in flight
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;        // or making a message
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;     // since MakeMessage had none
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // by End
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_BIDI_STREAM_H_
