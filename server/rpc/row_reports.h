// What a shard tells the coordinator of rows that are complete here (P41).
#ifndef AGG_SERVER_RPC_ROW_REPORTS_H_
#define AGG_SERVER_RPC_ROW_REPORTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/round/shard_peer.h"

namespace agg {

// Keeps the last report of each rank in the newest round, so that a coordinator
// whose connection was broken gets what it may have missed (P24). Thread-safe.
class RowReports {
 public:
  // Sends rows to the coordinator; called with no lock held, on any thread.
  using Sink = std::function<void(const std::vector<CompleteRow>& rows)>;

  // The coordinator's stream of this epoch, in place of any other: it gets what
  // is kept of the epoch, and then each report.
  void Begin(uint64_t epoch, Sink sink);
  // The row of `rank` is complete, as a frame of this epoch has shown.
  void Add(uint64_t epoch, int32_t rank, const CompleteRow& row);

 private:
  Mutex mutex_;
  uint64_t sink_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  Sink sink_ ABSL_GUARDED_BY(mutex_);           // null: none
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of rows_
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int32_t, CompleteRow> rows_ ABSL_GUARDED_BY(mutex_);  // by rank
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_ROW_REPORTS_H_
