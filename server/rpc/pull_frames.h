// How one published version is cut into frames, shared by all its pulls.
#ifndef AGG_SERVER_RPC_PULL_FRAMES_H_
#define AGG_SERVER_RPC_PULL_FRAMES_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "kernels/dtype.h"
#include "server/base/mutex.h"
#include "server/ingest/shard_layout.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Frames of whole slices of at most kMaxFramePayloadBytes, at least one (a
// shard without slices sends an empty one). Checksums are computed once, by
// the first pull that gets to a frame. Holds no reference on the snapshot, so
// that keeping it costs no memory that an update may wait for. Thread-safe.
class PullFrames {
 public:
  // REQUIRES: version.snapshot keeps `dtype`.
  PullFrames(const PublishedVersion& version, DType dtype);

  size_t num_frames() const { return frames_.size(); }
  int64_t payload_bytes(size_t frame) const { return frames_[frame].bytes; }

  // Aliases the snapshot's memory and holds it until the bytes are sent.
  // REQUIRES: the version that this was made of.
  grpc::ByteBuffer MakeBuffer(size_t frame, const PublishedVersion& version);

  bool Matches(const PublishedVersion& version, DType dtype) const {
    return epoch_ == version.epoch && version_ == version.version &&
           dtype_ == dtype;
  }

 private:
  struct Frame {
    size_t first = 0;  // positions among the shard's slices
    size_t end = 0;
    int64_t bytes = 0;
    std::vector<uint32_t> crc32c;  // guarded by its once_ until computed
  };

  const uint64_t epoch_, version_;
  const DType dtype_;
  const std::shared_ptr<const ShardLayout> layout_;
  std::vector<Frame> frames_;
  std::unique_ptr<std::once_flag[]> once_;  // one per frame
};

// The PullFrames of the newest few versions. Thread-safe.
class PullFrameCache {
 public:
  std::shared_ptr<PullFrames> Get(const PublishedVersion& version, DType dtype);

 private:
  static constexpr size_t kMaxEntries = 4;  // two versions in two dtypes
  Mutex mutex_;
  std::deque<std::shared_ptr<PullFrames>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_PULL_FRAMES_H_
