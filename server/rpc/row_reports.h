// What a shard tells the coordinator of rows that are complete here (P41).
#ifndef AGG_SERVER_RPC_ROW_REPORTS_H_
#define AGG_SERVER_RPC_ROW_REPORTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/round/shard_peer.h"

namespace agg {

// Keeps the last report of each rank in the newest round, of its newest
// session, and which of them the coordinator has not got yet. So a coordinator
// that reads slowly costs one report per rank, however many rows and waves are
// complete meanwhile, and one whose connection was broken gets what it may have
// missed (P24). Thread-safe.
class RowReports {
 public:
  // Says that Take has rows. Called with no lock held, on any thread.
  using Wake = std::function<void()>;

  // The coordinator's stream of this epoch, in place of any other: it is to be
  // told all that is kept of the epoch, and then each report. Its number, for
  // Take. Does not call `wake`.
  uint64_t Begin(uint64_t epoch, Wake wake);
  // The row of `rank` is complete, as a frame of this epoch has shown. An older
  // report than the one that is kept changes nothing.
  void Add(uint64_t epoch, int32_t rank, const CompleteRow& row);
  // What stream `number` has not taken yet, by rank; nothing if another one has
  // begun.
  std::vector<CompleteRow> Take(uint64_t number);

 private:
  Mutex mutex_;
  uint64_t stream_ ABSL_GUARDED_BY(mutex_) = 0;        // the newest one
  uint64_t stream_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of it
  Wake wake_ ABSL_GUARDED_BY(mutex_);                  // null: there is none
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;         // of rows_
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int32_t, CompleteRow> rows_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::set<int32_t> untold_ ABSL_GUARDED_BY(mutex_);             // of them
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_ROW_REPORTS_H_
