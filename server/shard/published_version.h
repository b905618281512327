// One published version of a shard's parameters, as a reader gets it.
#ifndef AGG_SERVER_SHARD_PUBLISHED_VERSION_H_
#define AGG_SERVER_SHARD_PUBLISHED_VERSION_H_

#include <cstdint>
#include <memory>

#include "server/ingest/shard_layout.h"
#include "server/params/snapshot.h"

namespace agg {

// The bytes stay as they are while `snapshot` is held. Drop it soon after it
// is revoked (snapshot.h): an update may wait for its memory.
struct PublishedVersion {
  uint64_t epoch = 0;
  uint64_t version = 0;
  std::shared_ptr<const ShardLayout> layout;  // where each slice lies
  std::shared_ptr<const Snapshot> snapshot;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_PUBLISHED_VERSION_H_
