// A file whose reads hang as long as a test wants it, as one of a network file
// system whose server is gone.
#ifndef AGG_TESTS_SERVER_BASE_HANGING_DISK_H_
#define AGG_TESTS_SERVER_BASE_HANGING_DISK_H_

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"

namespace agg {

// Outlives each read that hangs, which has a reference. Thread-safe.
class HangingDisk {
 public:
  absl::StatusOr<std::string> Read() {
    MutexLock lock(&mutex_);
    ++num_reads_;
    changed_.NotifyAll();
    while (hangs_) changed_.Wait(&mutex_);
    return text_;
  }
  void SetText(std::string text) {
    MutexLock lock(&mutex_);
    text_ = std::move(text);
  }
  void Hang(bool hangs) {
    MutexLock lock(&mutex_);
    hangs_ = hangs;
    changed_.NotifyAll();
  }
  // Waits until so many have begun.
  void AwaitReads(int number) {
    MutexLock lock(&mutex_);
    while (num_reads_ < number) changed_.Wait(&mutex_);
  }
  int num_reads() const {
    MutexLock lock(&mutex_);
    return num_reads_;
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
  bool hangs_ ABSL_GUARDED_BY(mutex_) = false;
  int num_reads_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace agg

#endif  // AGG_TESTS_SERVER_BASE_HANGING_DISK_H_
