// Whoever is awake takes the next part, the caller too: it never waits for a
// thread that has not begun.
#include "worker_client/copy_threads.h"

#include <algorithm>

namespace agg {

CopyThreads::CopyThreads(int num_threads)
    : num_parts_(std::clamp(num_threads, 1, kMaxThreads)) {
  for (int i = 1; i < num_parts_; ++i) {
    threads_.emplace_back([this] { Loop(); });
  }
}

CopyThreads::~CopyThreads() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void CopyThreads::Run(int64_t num_elements, const Work& work) {
  if (threads_.empty() || num_elements < kLeastElements ||
      busy_.exchange(true)) {
    work(0, num_elements);
    return;
  }
  {
    MutexLock lock(&mutex_);
    work_ = &work;
    num_elements_ = num_elements;
    next_ = 0;
    num_ended_ = 0;
    changed_.NotifyAll();
    while (DoPart()) {
    }
    while (num_ended_ < num_parts_) changed_.Wait(&mutex_);
    work_ = nullptr;
  }
  busy_ = false;
}

bool CopyThreads::DoPart() {
  if (work_ == nullptr || next_ == num_parts_) return false;
  const int part = next_++;
  const Work* const work = work_;
  const int64_t num_elements = num_elements_;
  const auto begin_of = [&](int i) {
    return i == num_parts_ ? num_elements
                           : num_elements * i / num_parts_ / kPartAlignment *
                                 kPartAlignment;
  };
  mutex_.Unlock();
  (*work)(begin_of(part), begin_of(part + 1));
  mutex_.Lock();
  if (++num_ended_ == num_parts_) changed_.NotifyAll();
  return true;
}

void CopyThreads::Loop() {
  MutexLock lock(&mutex_);
  while (!stopped_) {
    if (!DoPart()) changed_.Wait(&mutex_);
  }
}

}  // namespace agg
