// One version of a shard's parameters, as a reader gets it: published, or on
// its way in a pipelined round.
#ifndef AGG_SERVER_SHARD_PUBLISHED_VERSION_H_
#define AGG_SERVER_SHARD_PUBLISHED_VERSION_H_

#include <cstdint>
#include <memory>

#include "server/ingest/shard_layout.h"
#include "server/params/snapshot.h"
#include "server/shard/version_progress.h"

namespace agg {

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
