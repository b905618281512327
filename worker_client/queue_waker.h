// Lets any thread end the wait of the one that polls a completion queue.
#ifndef AGG_WORKER_CLIENT_QUEUE_WAKER_H_
#define AGG_WORKER_CLIENT_QUEUE_WAKER_H_

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <memory>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace agg {

// Its event comes out of the queue with this object as the tag. Thread-safe.
class QueueWaker {
 public:
  // REQUIRES: the queue is drained before this is destroyed.
  explicit QueueWaker(grpc::CompletionQueue* queue) : queue_(queue) {}
  QueueWaker(const QueueWaker&) = delete;
  QueueWaker& operator=(const QueueWaker&) = delete;

  // The event comes, once for all calls until TakeEvent. REQUIRES: the queue is
  // not shut down.
  void Wake();
  // It has come.
  void TakeEvent();

 private:
  grpc::CompletionQueue* const queue_;
  Mutex mutex_;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // null: none
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_QUEUE_WAKER_H_
