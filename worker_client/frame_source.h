// Makes the frames of one push from the caller's memory. Apart from the streams
// so that each shard's stream only has to ask for its next frame.
#ifndef AGG_WORKER_CLIENT_FRAME_SOURCE_H_
#define AGG_WORKER_CLIENT_FRAME_SOURCE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "server/base/mutex.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Keeps the buffers for narrowed rows, and counts the frames whose bytes gRPC
// may still read. Reused from push to push. Thread-safe.
class FrameMemory : public std::enable_shared_from_this<FrameMemory> {
 public:
  // The owner of one frame's bytes: counts the frame until it is released,
  // and then takes `staging` back.
  std::shared_ptr<const void> Hold(
      std::unique_ptr<std::vector<uint16_t>> staging);

  // A buffer for a frame: a released one, or a new one. Contents: undefined.
  std::unique_ptr<std::vector<uint16_t>> TakeStaging();

  int64_t frames_in_use() const;

 private:
  void Release(std::unique_ptr<std::vector<uint16_t>> staging);

  mutable Mutex mutex_;
  int64_t frames_in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<std::vector<uint16_t>>> free_
      ABSL_GUARDED_BY(mutex_);
};

// The frames of one push to one shard. A tensor that already has the push dtype
// is sent from where it lies; other tensors are narrowed into staging. May make
// a frame several times (for retries). Thread-compatible.
class FrameSource {
 public:
  // `meta` has all fields except slices and checksums. REQUIRES: router, the
  // bound views and their memory outlive this and every frame.
  FrameSource(const ShardRouter* router, absl::Span<const TensorView> bound,
              int shard, v1::FrameMeta meta, DType dtype,
              std::shared_ptr<FrameMemory> memory);

  int num_frames() const { return static_cast<int>(plans_.size()); }
  grpc::ByteBuffer Make(int frame);

  // CommitRequest.row_crc32c for this shard; nothing before every frame was
  // made at least once.
  absl::optional<uint32_t> row_crc32c() const;

 private:
  // The slice's bytes as sent: in place, or narrowed to `staging`'s end.
  absl::string_view Payload(const Slice& slice,
                            std::vector<uint16_t>* staging) const;
  bool NeedsStaging(const FramePlan& plan) const;

  const ShardRouter* router_;
  absl::Span<const TensorView> bound_;
  v1::FrameMeta meta_;
  DType dtype_;
  std::shared_ptr<FrameMemory> memory_;
  std::vector<FramePlan> plans_;
  // By frame: the checksums of its slices and absent slices, in the order of
  // their indices; empty before the frame was made.
  std::vector<std::vector<uint32_t>> crc32c_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_FRAME_SOURCE_H_
