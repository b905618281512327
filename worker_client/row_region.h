// A worker's row in a shard's memory, where it writes its gradient (P39).
#ifndef AGG_WORKER_CLIENT_ROW_REGION_H_
#define AGG_WORKER_CLIENT_ROW_REGION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device_memory/registered_memory.h"
#include "kernels/dtype.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "server/base/shared_memory.h"
#include "worker_client/bound_views.h"
#include "worker_client/copy_threads.h"
#include "worker_client/error_feedback.h"
#include "worker_client/lazy_registration.h"
#include "worker_client/row_devices.h"
#include "worker_client/row_placement.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// A worker's row at one shard. From Begin on, what follows is for one push at a
// time; the rest is thread-safe, but for RowDevices's own rules.
class RowRegion {
 public:
  // Maps what `reply` says of the row of `shard`. INTERNAL: it is not of
  // `dtype`, or its slices are not inside; errors of SharedMemory::Map.
  // `copies` share what Write copies; null: nobody does. REQUIRES:
  // reply.has_row(); router and copies outlive the last Write.
  static absl::StatusOr<std::unique_ptr<RowRegion>> Map(
      const ShardRouter* router, int shard, DType dtype,
      const v1::RegionReply& reply, const FileDescriptor& fd,
      CopyThreads* copies = nullptr);

  DType dtype() const { return dtype_; }
  int64_t num_bytes() const { return memory_->num_bytes(); }
  // Returns where the elements of a slice of this shard (its number in the job)
  // lie; null: of another shard.
  char* Address(int32_t slice) const { return addresses_[slice]; }

  // Devices that write to the row's other side, on the shard's device.
  RowDevices* devices() { return &devices_; }

  // Begins a row as RowPlacement::Begin does. True: write each slice before it
  // is named in a frame: with WriteOnDevice while on_device(), else with Write.
  // `devices`: as RowDevices::Begin's (GrowingRow::devices).
  bool Begin(const RowName& row, bool leaves_out,
             const std::set<int>& devices = {});
  bool on_device() const { return devices_.used(); }
  // Copies, or rounds, the slice's elements of `row` to their place, unless
  // they are there already: written before, or the tensor's memory is the
  // place. `feedback`: for what is rounded; null: none. INTERNAL: they cannot
  // be copied from their device. REQUIRES: Begin was true; a slice of this
  // shard, whose tensor GrowingRow::Take has given.
  absl::Status Write(int32_t slice, const BoundRow& row,
                     ErrorFeedback* feedback);
  // Writes slices on the device: begins copies, which RowDevices::Await ends.
  // What is not of the row's dtype, or on a device without a way, goes through
  // the host's side. Otherwise as Write.
  absl::StatusOr<RowDevices::Copies> WriteOnDevice(
      absl::Span<const int32_t> slices, const BoundRow& row,
      ErrorFeedback* feedback);
  // Gives up the device after one of these two has failed: no copy is under way
  // any more, and this row, all of it, and later ones of its devices go by way
  // of the host: on_device() is false. (Slices that were named are good where
  // they are.)
  void GiveUpDevice();
  void Land(const RowName& row) { placement_.Land(row); }

 private:
  // Rounds a slice's float32 elements in host memory to where the slice lies.
  void Encode(int32_t index, const float* from, ErrorFeedback* feedback,
              EncodingTally* tally);
  // Calls `copy` for parts of `count` elements, on the threads that share it.
  void Share(int64_t count, const std::function<void(int64_t, int64_t)>& copy);
  // Notes where one slice lies; INTERNAL: not inside.
  absl::Status Place(int32_t slice, uint64_t offset);
  RowRegion(const ShardRouter* router, DType dtype, CopyThreads* copies,
            std::unique_ptr<SharedMemory> memory)
      : router_(router),
        dtype_(dtype),
        copies_(copies),
        memory_(std::move(memory)),
        registration_(memory_->data(), memory_->num_bytes(),
                      RegisteredMemory::Access::kReadWrite) {}

  const ShardRouter* const router_;
  const DType dtype_;
  CopyThreads* const copies_;
  const std::unique_ptr<SharedMemory> memory_;
  LazyRegistration registration_;  // of memory_
  std::vector<char*> addresses_;   // by the job's slices; null: of other shards
  std::vector<char*> scales_;      // of rows of int8; else empty
  RowPlacement placement_;
  RowName row_;                // that Write writes
  std::vector<bool> written_;  // of it, by the job's slices
  RowDevices devices_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROW_REGION_H_
