// What a client hears, until somebody asks: for callers that cannot be called.
#ifndef AGG_WORKER_CLIENT_C_EVENT_QUEUE_H_
#define AGG_WORKER_CLIENT_C_EVENT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "worker_client/client_event.h"

namespace agg {

struct QueuedEvent {
  ClientEvent event;
  uint64_t num_dropped = 0;  // events lost between the one before and this one
};

// First in, first out; of more than kCapacity the oldest are dropped, so that a
// caller who never asks costs no more memory. Thread-safe.
class EventQueue {
 public:
  static constexpr size_t kCapacity = 256;

  void Add(const ClientEvent& event);  // never blocks
  // Waits for up to `timeout` (below 0: as 0); nothing: none came.
  std::optional<QueuedEvent> Take(absl::Duration timeout);

 private:
  Mutex mutex_;
  CondVar added_;
  std::deque<ClientEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_C_EVENT_QUEUE_H_
