// Copies the frames of a pull into the caller's tensors. Apart from the stream
// because it checks bytes from the network, and is testable without one.
#ifndef AGG_WORKER_CLIENT_PARAMETER_SINK_H_
#define AGG_WORKER_CLIENT_PARAMETER_SINK_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/device_memory/device_stream.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "proto/byte_buffer_frame.h"
#include "worker_client/copy_threads.h"
#include "worker_client/device_row.h"
#include "worker_client/pull_arrivals.h"
#include "worker_client/shard_regions.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// INTERNAL: a shard has sent a frame that is not as the protocol says.
absl::Status UnexpectedFrame(absl::string_view what);

// What one pull expects of every frame.
struct PullTarget {
  uint64_t epoch = 0;
  uint64_t version = 0;
  DType dtype = DType::kF32;
};

// Trusts nothing that arrives: a bad frame is an error, never a write outside
// its slices. What has arrived is not written again. Float32 bytes are copied
// once, from gRPC's memory to the tensor; 16-bit ones are widened from a small
// scratch. What is for a device's memory is put together on the host, slice by
// slice, and copied from there, unless it is float32 in shared memory that the
// driver has registered. Thread-compatible.
class ParameterSink {
 public:
  // Makes a sink where nothing has landed. REQUIRES: router, the tensors,
  // `arrivals` and `copies` outlive this; `bound` is from Bind. `copies` are
  // threads that share what LandPlaced copies; null: nobody does.
  ParameterSink(const ShardRouter* router, const BoundTargets& bound,
                const PullTarget& target, PullArrivals* arrivals,
                CopyThreads* copies = nullptr);
  ~ParameterSink();
  ParameterSink(const ParameterSink&) = delete;
  ParameterSink& operator=(const ParameterSink&) = delete;

  // Copies a frame of `shard`. DATA_LOSS: a checksum differs. INTERNAL: it is
  // not a frame of the target, or holds a slice of another shard, or one that
  // has come before; or a copy to a device has failed.
  absl::Status Land(int shard, const grpc::ByteBuffer& frame);
  // Copies a frame whose head has been read.
  absl::Status Land(int shard, FrameReader* reader);

  // Copies the slices of which a frame of `shard` says the place in `region`
  // (P40). ABORTED: the shard has overwritten it meanwhile. INTERNAL: as Land,
  // or the place is not inside.
  absl::Status LandPlaced(int shard, const v1::PullFrame& frame,
                          const VersionRegion& region);

  // Copies the slices of which a frame says the place on the shard's device
  // (P48). The devices that have the targets copy them: all of these must be
  // among `parameters`. ABORTED: the shard has begun to overwrite it. INTERNAL
  // as above.
  absl::Status LandPlaced(int shard, const v1::PullFrame& frame,
                          const ParametersByDevice& parameters);

  // Returns OK when all slices of the shard have landed, else INTERNAL.
  absl::Status CheckComplete(int shard) const;

  // Forgets what landed from the shard, before it is pulled again.
  void Restart(int shard);

 private:
  // Reads 16-bit elements into `to`, and returns their bytes' CRC32C.
  uint32_t ReadWidened(absl::Span<float> to, FrameReader* reader);
  // Copies the i-th slice of the frame.
  absl::Status LandSlice(int shard, int i, FrameReader* reader);
  // Whether a frame with places is of the target, and of such slices.
  absl::Status CheckPlaced(int shard, const v1::PullFrame& frame) const;
  // Returns OK if the slice is the shard's, and has not come before.
  absl::Status CheckSlice(int shard, uint32_t index) const;
  // Copies a slice of a region that holds the version as long as it has this
  // generation.
  absl::Status CopySlice(uint32_t index, uint64_t offset, uint64_t generation,
                         const VersionRegion& region);
  // Whether its device copies the slice from the region by itself.
  bool IsDirect(const Slice& slice, const VersionRegion& region) const;
  // The slice's elements, of the target's dtype.
  void CopyElements(const Slice& slice, const char* from, float* to);
  // Returns where the slice's float32 elements are put: their tensor, or memory
  // of the host from which Deliver copies them to it.
  absl::StatusOr<float*> PlaceOf(const Slice& slice);
  absl::Status Deliver(const Slice& slice, const float* from);

  const ShardRouter* const router_;
  const BoundTargets bound_;
  const PullTarget target_;
  PullArrivals* const arrivals_;
  CopyThreads* const copies_;
  std::vector<bool> landed_;  // by slice; its bytes are right
  std::vector<uint16_t> scratch_;
  std::unique_ptr<PinnedHostMemory> pinned_;  // null: not needed so far
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_PARAMETER_SINK_H_
