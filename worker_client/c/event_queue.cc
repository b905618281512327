// Waits by the steady clock: the system's may be set back.
#include "worker_client/c/event_queue.h"

#include <chrono>
#include <utility>

namespace agg {

void EventQueue::Add(const ClientEvent& event) {
  MutexLock lock(&mutex_);
  if (events_.size() == kCapacity) {
    events_.pop_front();
    ++num_dropped_;
  }
  events_.push_back(event);
  added_.NotifyAll();
}

std::optional<QueuedEvent> EventQueue::Take(absl::Duration timeout) {
  const auto began = std::chrono::steady_clock::now();
  const auto left = [&] {
    return timeout - absl::FromChrono(std::chrono::steady_clock::now() - began);
  };
  MutexLock lock(&mutex_);
  while (events_.empty() && left() > absl::ZeroDuration()) {
    added_.WaitFor(&mutex_, left());
  }
  if (events_.empty()) return std::nullopt;
  QueuedEvent taken{std::move(events_.front()), num_dropped_};
  events_.pop_front();
  num_dropped_ = 0;
  return taken;
}

}  // namespace agg
