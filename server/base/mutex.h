// std::mutex and std::condition_variable with clang's thread annotations.
// (Debian's absl::Mutex is not instrumented for ThreadSanitizer and reports
// races where there are none.)
#ifndef AGG_SERVER_BASE_MUTEX_H_
#define AGG_SERVER_BASE_MUTEX_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace agg {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  // Never waits; whether the caller has the lock now.
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.try_lock();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex)
      : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Waits may return spuriously: callers loop on their condition.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  void WaitFor(Mutex* mutex, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    // An hour at most: now() plus an endless duration would overflow.
    const absl::Duration wait =
        std::clamp(timeout, absl::ZeroDuration(), absl::Hours(1));
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    // The steady clock counts, since the system's clock may be set back, and
    // the wait would last as much longer.
    condition_.wait_until(lock, std::chrono::steady_clock::now() +
                                    absl::ToChronoNanoseconds(wait));
    lock.release();
  }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_MUTEX_H_
