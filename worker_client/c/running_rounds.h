// The rounds that run inside calls of the C ABI, for agg_interrupt.
#ifndef AGG_WORKER_CLIENT_C_RUNNING_ROUNDS_H_
#define AGG_WORKER_CLIENT_C_RUNNING_ROUNDS_H_

#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/optional.h"
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
      rounds_->cancelled_.reset();
      rounds_->entries_.insert(this);
    }
    ~Entry() {
      MutexLock lock(&rounds_->mutex_);
      rounds_->entries_.erase(this);
      if (told_ && absl::IsCancelled(round_.Status())) {
        rounds_->cancelled_ = round_;
      }
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    RoundOperation* round() { return &round_; }

   private:
    friend class RunningRounds;
    RunningRounds* const rounds_;
    RoundOperation round_;
    bool told_ = false;  // to end; of the rounds' mutex
  };

  // Cancels those that there are.
  void Cancel() {
    std::vector<RoundOperation> rounds;
    {
      MutexLock lock(&mutex_);
      for (Entry* entry : entries_) {
        entry->told_ = true;
        rounds.push_back(entry->round_);
      }
    }
    for (RoundOperation& round : rounds) round.Cancel();
  }

  // The last one that Cancel has ended, once; nothing: another one has begun
  // since, or there was none.
  absl::optional<RoundOperation> TakeCancelled() {
    MutexLock lock(&mutex_);
    absl::optional<RoundOperation> taken;
    taken.swap(cancelled_);
    return taken;
  }

 private:
  Mutex mutex_;
  std::set<Entry*> entries_ ABSL_GUARDED_BY(mutex_);
  absl::optional<RoundOperation> cancelled_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_C_RUNNING_ROUNDS_H_
