// Counts who wants the turn, so that the filler gives way to a phase after
// the batch at hand.
#include "server/shard/compute_turn.h"

#include <utility>

namespace agg {

void ComputeTurn::Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  {
    MutexLock lock(&mutex_);
    ++num_users_;
  }
  turn_.Lock();
}

bool ComputeTurn::TryLock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (!turn_.TryLock()) return false;
  MutexLock lock(&mutex_);
  ++num_users_;
  return true;
}

void ComputeTurn::Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  turn_.Unlock();
  MutexLock lock(&mutex_);
  --num_users_;
  changed_.NotifyAll();
}

void ComputeTurn::StartFiller(std::function<void()> fill) {
  filler_ = std::thread([this, fill = std::move(fill)] { RunFiller(fill); });
}

void ComputeTurn::StopFiller() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (filler_.joinable()) filler_.join();
}

void ComputeTurn::WakeFiller() {
  MutexLock lock(&mutex_);
  awake_ = true;
  changed_.NotifyAll();
}

void ComputeTurn::RunFiller(const std::function<void()>& fill) {
  for (;;) {
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && (!awake_ || num_users_ > 0)) changed_.Wait(&mutex_);
      if (stopping_) return;
      // Before the call, so that a wake-up that comes during it counts.
      awake_ = false;
    }
    fill();
  }
}

}  // namespace agg
