// A queue and one thread: closures run in order and never at the same time.
#include "server/rpc/executor.h"

#include <utility>

namespace agg {

Executor::Executor() : thread_([this] { Loop(); }) {}

Executor::~Executor() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void Executor::Run(std::function<void()> closure) {
  {
    MutexLock lock(&mutex_);
    queue_.push_back(std::move(closure));
  }
  changed_.NotifyAll();
}

void Executor::Loop() {
  for (;;) {
    std::function<void()> closure;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stopped_) changed_.Wait(&mutex_);
      if (queue_.empty()) return;
      closure = std::move(queue_.front());
      queue_.pop_front();
    }
    closure();
  }
}

}  // namespace agg
