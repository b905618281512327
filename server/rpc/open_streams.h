// The streams that are open on this server, so that a drain can end them.
#ifndef AGG_SERVER_RPC_OPEN_STREAMS_H_
#define AGG_SERVER_RPC_OPEN_STREAMS_H_

#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/mutex.h"

namespace agg {

// Thread-safe. Every `end` is called with no lock held and at most once. It may
// still run when Remove returns, so it must not rely on the stream's life.
class OpenStreams {
 public:
  using End = std::function<void(const absl::Status&)>;

  // Returns an id for Remove. After EndAll, `end` is called at once.
  int64_t Add(End end);
  void Remove(int64_t id);
  // Ends all streams, and all later ones, with `reason`.
  void EndAll(const absl::Status& reason);

 private:
  Mutex mutex_;
  std::map<int64_t, End> streams_ ABSL_GUARDED_BY(mutex_);
  int64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Status reason_ ABSL_GUARDED_BY(mutex_);  // OK: not ended
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_OPEN_STREAMS_H_
