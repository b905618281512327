// One version of a shard's parameters, as a reader gets it: published, or on
// its way in a pipelined round.
#ifndef AGG_SERVER_SHARD_PUBLISHED_VERSION_H_
#define AGG_SERVER_SHARD_PUBLISHED_VERSION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "server/base/mutex.h"
#include "server/ingest/shard_layout.h"
#include "server/params/snapshot.h"

namespace agg {

// How far a version is that a pipelined round is writing (P43). Slices are
// written in the layout's order. The version exists only when it is published:
// until then readers hold back its end, and they drop all of it if it never is.
// Thread-safe.
class VersionProgress {
 public:
  // Called after each change, with no lock held, on any thread, and at once if
  // something has changed before. An error: the version will not be published.
  // It may still be called while, and after, the listener goes.
  using Listener = std::function<void(const absl::Status&)>;
  void Listen(Listener listener);

  // The first `num_slices` of the layout are written.
  void Advance(size_t num_slices);
  void Publish();
  // `reason` is an error. Nothing changes if it is published already.
  void Fail(const absl::Status& reason);

  // Whether the slices up to `end` may be read; `last`: they are the version's
  // end, which only a published version has.
  bool Allows(size_t end, bool last) const;

 private:
  void Tell();

  mutable Mutex mutex_;
  size_t num_slices_ ABSL_GUARDED_BY(mutex_) = 0;
  bool published_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::vector<Listener> listeners_ ABSL_GUARDED_BY(mutex_);
};

// The bytes stay as they are while `snapshot` is held. Drop it soon after it
// is revoked (snapshot.h): an update may wait for its memory.
struct PublishedVersion {
  uint64_t epoch = 0;
  uint64_t version = 0;
  std::shared_ptr<const ShardLayout> layout;  // where each slice lies
  std::shared_ptr<const Snapshot> snapshot;
  // How far it is, of a version that is not published yet; else null.
  std::shared_ptr<VersionProgress> progress;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_PUBLISHED_VERSION_H_
