// The common part of our bidirectional reactors: queued writes, one end, and a
// life that lasts as long as a reference on it.
#ifndef AGG_SERVER_RPC_BIDI_STREAM_H_
#define AGG_SERVER_RPC_BIDI_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "proto/status_conversion.h"
#include "server/base/mutex.h"
#include "server/rpc/open_streams.h"

namespace agg {

// Messages go out in the order of Send, then the status of the first End; a
// message that is sent after End is dropped. gRPC is called with no lock held,
// with one write in flight, and Finish only when none is. The stream owns
// itself until OnDone; others keep a weak_ptr, and may call Send and End at any
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

  // To be called by the factory, right after it has made the shared_ptr.
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

  // Called once, after the RPC's end, whatever the reason.
  virtual void OnEnded() {}

 private:
  static constexpr size_t kMaxQueued = 1024;

  void OnWriteDone(bool ok) final {
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

  // Starts the next write, or the finish, unless one is in flight.
  void Pump() {
    const Response* next = nullptr;
    absl::Status status;
    {
      MutexLock lock(&mutex_);
      if (writing_ || finished_) return;
      if (!queue_.empty()) {
        writing_ = true;
        next = &queue_.front();  // deque: stays put while others are queued
      } else if (ended_) {
        finished_ = true;
        status = status_;
      } else {
        return;
      }
    }
    if (next != nullptr) {
      this->StartWrite(next);
    } else {
      this->Finish(ToGrpcStatus(status));
    }
  }

  OpenStreams* const open_;
  int64_t open_id_ = 0;
  std::shared_ptr<BidiStream> self_;
  Mutex mutex_;
  std::deque<Response> queue_ ABSL_GUARDED_BY(mutex_);  // front: in flight
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // by End
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_BIDI_STREAM_H_
