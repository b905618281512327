// A coordinator's loop on a thread that runs only while the simulation waits
// for it: so it can stand still in the midst of a call, as a process that was
// frozen does, and go on much later.
#ifndef AGG_TESTS_SIM_COORDINATOR_THREAD_H_
#define AGG_TESTS_SIM_COORDINATOR_THREAD_H_

#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"

namespace agg {

class CoordinatorThread {
 public:
  // `run_once`: Coordinator::RunOnce.
  explicit CoordinatorThread(std::function<bool()> run_once)
      : run_once_(std::move(run_once)), thread_([this] { Loop(); }) {}
  // REQUIRES: it does not stand still.
  ~CoordinatorThread() {
    {
      MutexLock lock(&mutex_);
      stop_ = true;
      changed_.NotifyAll();
    }
    thread_.join();
  }

  // Runs it once, or on from where it stood still. Returns what run_once did;
  // false if it stands still now.
  bool Run() {
    MutexLock lock(&mutex_);
    running_ = true;
    changed_.NotifyAll();
    while (running_) changed_.Wait(&mutex_);
    return !still_ && did_;
  }
  bool still() const {
    MutexLock lock(&mutex_);
    return still_;
  }
  // Gives, on the thread, from within run_once, control back to who called Run,
  // until the next Run.
  void StandStill() {
    MutexLock lock(&mutex_);
    still_ = true;
    running_ = false;
    changed_.NotifyAll();
    while (!running_) changed_.Wait(&mutex_);
    still_ = false;
  }
  bool is_current() const {
    MutexLock lock(&mutex_);
    return std::this_thread::get_id() == id_;
  }

 private:
  void Loop() {
    {
      MutexLock lock(&mutex_);
      id_ = std::this_thread::get_id();
    }
    for (;;) {
      {
        MutexLock lock(&mutex_);
        while (!running_ && !stop_) changed_.Wait(&mutex_);
        if (stop_) return;
      }
      const bool did = run_once_();
      MutexLock lock(&mutex_);
      did_ = did;
      running_ = false;
      changed_.NotifyAll();
    }
  }

  const std::function<bool()> run_once_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool still_ ABSL_GUARDED_BY(mutex_) = false;
  bool did_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread::id id_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace agg

#endif  // AGG_TESTS_SIM_COORDINATOR_THREAD_H_
