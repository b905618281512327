// What a shard tells the coordinator of rows that are complete here (P41).
#ifndef AGG_SERVER_RPC_ROW_REPORTS_H_
#define AGG_SERVER_RPC_ROW_REPORTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {

// What one message has.
struct RowReport {
  std::vector<CompleteRow> rows;  // by rank
  // Offer of the newest round, if it has not been taken; null: none.
  std::shared_ptr<const CloseOffer> offer;
};

// Keeps the last report of each rank in the newest round, of its newest
// session, and which of them the coordinator has not got yet. So a coordinator
// that reads slowly costs one report per rank, however many rows and waves are
// complete meanwhile, and one whose connection was broken gets what it may have
// missed (P24). Thread-safe.
class RowReports {
 public:
  // `clock` outlives it.
  explicit RowReports(const Clock* clock = Clock::Real()) : clock_(clock) {}

  // Says that Take has rows. Called with no lock held, on any thread.
  using Wake = std::function<void()>;

  // The coordinator's stream of this epoch, in place of any other: it is to be
  // told all that is kept of the epoch, and then each report. Its number, for
  // Take. Does not call `wake`.
  uint64_t Begin(uint64_t epoch, Wake wake);
  // The row of `rank` is complete, as a frame of this epoch has shown. An older
  // report than the one that is kept is not kept. `more`: others of its round
  // follow, so that it is held back, and told with them or with Flush, unless
  // the round's last row or a Flush came first. Not `more`: as Flush, too.
  void Add(uint64_t epoch, int32_t rank, const CompleteRow& row,
           bool more = false);
  // Adds an offer, which goes with the next report, or with Flush.
  void AddOffer(uint64_t epoch, std::shared_ptr<const CloseOffer> offer);
  // Holds nothing of this round back, now or later: it is complete.
  void Flush(uint64_t epoch, uint64_t round);
  // Does the same for the round that is kept.
  void Flush();
  // What stream `number` has not taken yet; nothing if another one has begun.
  RowReport Take(uint64_t number);

 private:
  // Whether an epoch's round is before the one that is kept.
  bool IsPast(uint64_t epoch, uint64_t round) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Holds nothing back; returns whom to wake for what was, or null.
  Wake Release() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Keeps it for the next Take, unless it is old; whether there is a stream
  // that is to be told.
  bool Keep(uint64_t epoch, int32_t rank, const CompleteRow& row)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets all that is of another round.
  void GoTo(uint64_t epoch, uint64_t round)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  Mutex mutex_;
  uint64_t stream_ ABSL_GUARDED_BY(mutex_) = 0;        // the newest one
  uint64_t stream_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of it
  Wake wake_ ABSL_GUARDED_BY(mutex_);                  // null: there is none
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;         // of rows_
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int32_t, CompleteRow> rows_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::map<int32_t, absl::Time> complete_at_ ABSL_GUARDED_BY(mutex_);
  std::set<int32_t> untold_ ABSL_GUARDED_BY(mutex_);  // of rows_
  bool held_back_ ABSL_GUARDED_BY(mutex_) = false;    // all that are untold
  bool released_ ABSL_GUARDED_BY(mutex_) = false;     // nothing of round_ is
  std::shared_ptr<const CloseOffer> offer_ ABSL_GUARDED_BY(mutex_);  // untold
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_ROW_REPORTS_H_
