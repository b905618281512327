// The rounds that run inside calls of the C ABI, for agg_interrupt.
#ifndef AGG_WORKER_CLIENT_C_RUNNING_ROUNDS_H_
#define AGG_WORKER_CLIENT_C_RUNNING_ROUNDS_H_

#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "worker_client/operation.h"

namespace agg {

// Thread-safe.
class RunningRounds {
 public:
  // One round, as long as this lives. REQUIRES: `rounds` outlives it.
  class Entry {
   public:
    Entry(RunningRounds* rounds, RoundOperation round)
        : rounds_(rounds), round_(std::move(round)) {
      MutexLock lock(&rounds_->mutex_);
      rounds_->entries_.insert(this);
    }
    ~Entry() {
      MutexLock lock(&rounds_->mutex_);
      rounds_->entries_.erase(this);
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    RoundOperation* round() { return &round_; }

   private:
    friend class RunningRounds;
    RunningRounds* const rounds_;
    RoundOperation round_;
  };

  // Cancels those that there are.
  void Cancel() {
    std::vector<RoundOperation> rounds;
    {
      MutexLock lock(&mutex_);
      for (const Entry* entry : entries_) rounds.push_back(entry->round_);
    }
    for (RoundOperation& round : rounds) round.Cancel();
  }

 private:
  Mutex mutex_;
  std::set<Entry*> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_C_RUNNING_ROUNDS_H_
