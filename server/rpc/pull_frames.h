// How one published version is cut into frames, shared by all its pulls.
#ifndef AGG_SERVER_RPC_PULL_FRAMES_H_
#define AGG_SERVER_RPC_PULL_FRAMES_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "server/base/mutex.h"
#include "server/ingest/shard_layout.h"
#include "server/shard/published_version.h"

namespace agg {

// What a frame is in: PullFrame, or PushAck (P41). kPlace: a PullFrame that
// says where the bytes are (P40), of which PullFrames knows nothing.
// kDevicePlace: the same, on a device if it is there (P48).
enum class FrameForm { kPullFrame, kPushAck, kPlace, kDevicePlace };

// Whether a reader of this form maps what it reads.
inline bool IsPlace(FrameForm form) {
  return form == FrameForm::kPlace || form == FrameForm::kDevicePlace;
}

// Each frame has one or more complete slices, up to kMaxFramePayloadBytes.
// There is at least one frame; a shard without slices sends it empty. Checksums
// and what else stands before a frame's payload are made once, by the first
// pull that gets there, and sent by all of them. This does not hold
// the snapshot, so that the cache below never keeps memory for which an update
// waits. Thread-safe.
class PullFrames {
 public:
  // REQUIRES: version.snapshot->data(dtype) != nullptr, and is readable when
  // MakeBuffer is called.
  PullFrames(const PublishedVersion& version, DType dtype);

  size_t num_frames() const { return frames_.size(); }
  int64_t payload_bytes(size_t frame) const { return frames_[frame].bytes; }
  // Position, among the shard's slices, behind the frame's last slice.
  size_t end_slice(size_t frame) const { return frames_[frame].end; }

  // All frames in the order in which a pull gets them: first those that hold
  // these slices, then the others, ascending. A slice of another shard, or of
  // none, has no effect.
  std::vector<size_t> Order(absl::Span<const uint32_t> first_slices) const;

  // A frame that points into the snapshot's memory, which lends it the bytes
  // until they are sent. REQUIRES: `version` is the one of the constructor;
  // !IsPlace(form).
  grpc::ByteBuffer MakeBuffer(size_t frame, const PublishedVersion& version,
                              FrameForm form);

  bool Matches(const PublishedVersion& version, DType dtype) const {
    return epoch_ == version.epoch && version_ == version.version &&
           dtype_ == dtype;
  }

 private:
  struct Frame {
    size_t first = 0;  // positions among the shard's slices
    size_t end = 0;
    int64_t bytes = 0;
    // Headers by form; guarded by the frame's once_ until they are made.
    grpc::Slice headers[2];
  };

  void MakeHeaders(absl::Span<const absl::string_view> pieces, size_t index);

  const uint64_t epoch_, version_;
  const DType dtype_;
  const std::shared_ptr<const ShardLayout> layout_;
  std::vector<Frame> frames_;
  std::unique_ptr<std::once_flag[]> once_;  // one per frame
};

// The PullFrames of the versions that are being pulled: at most four, the
// oldest makes room. Thread-safe.
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
