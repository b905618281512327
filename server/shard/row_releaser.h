// Ends rows on a thread of its own: giving back gigabytes of pinned memory
// takes long, and whoever finds that nobody needs a row any more holds a lock
// that all frames take, or is in the midst of a round.
#ifndef AGG_SERVER_SHARD_ROW_RELEASER_H_
#define AGG_SERVER_SHARD_ROW_RELEASER_H_

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/backend.h"
#include "server/base/mutex.h"

namespace agg {

// Thread-safe.
class RowReleaser {
 public:
  RowReleaser() = default;
  // When all that was released has ended.
  ~RowReleaser();
  RowReleaser(const RowReleaser&) = delete;
  RowReleaser& operator=(const RowReleaser&) = delete;

  // Lets go of the row, soon: unless somebody else holds it, it ends on the
  // thread, which the first call starts. Waits for nothing, so that the caller
  // may hold any lock.
  void Release(std::shared_ptr<const Buffer> row);

  // Returns when what was released so far is let go. No lock may be held that
  // the end of a row takes.
  void Wait();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<const Buffer>> rows_ ABSL_GUARDED_BY(mutex_);
  bool releasing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // started under mutex_
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_ROW_RELEASER_H_
