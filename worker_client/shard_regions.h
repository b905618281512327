// What of the shards' memory this client has mapped, from epoch to epoch.
#ifndef AGG_WORKER_CLIENT_SHARD_REGIONS_H_
#define AGG_WORKER_CLIENT_SHARD_REGIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/dtype.h"
#include "proto/region.pb.h"
#include "proto/shard_plan.h"
#include "server/base/file_descriptor.h"
#include "server/base/mutex.h"
#include "server/base/shared_memory.h"
#include "worker_client/client_types.h"
#include "worker_client/copy_threads.h"
#include "worker_client/device_row.h"
#include "worker_client/job_view.h"
#include "worker_client/row_encoding.h"
#include "worker_client/row_ledger.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// A reply, of which nothing is checked but that it has as many descriptors as
// its regions take.
struct RegionAnswer {
  v1::RegionReply reply;
  std::vector<FileDescriptor> descriptors;
};

// Asks a shard of this host for its shared memory (proto/region.proto) on the
// Unix socket `name`, of a process of this user or of root. Ends within some
// seconds. UNAVAILABLE: nobody is there, as on another host; the shard's
// refusal; INTERNAL: it is no answer.
absl::StatusOr<RegionAnswer> AskForRegions(const std::string& name,
                                           const v1::RegionRequest& request);

// A worker's row in a shard's memory, where it writes its gradient (P39). From
// Begin on, what follows is for one push at a time; the rest is thread-safe,
// but for RowDevices's own rules.
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

// A shard's memory in which published versions lie (P40). It is mapped to be
// read. The shard overwrites it with another version when it needs the memory,
// and says so before, by the generation. Thread-safe.
class VersionRegion {
 public:
  // Errors of SharedMemory::Map; INTERNAL: a size that no region has.
  static absl::StatusOr<std::unique_ptr<VersionRegion>> Map(
      const v1::Region& said, const FileDescriptor& fd);

  // Returns the address of `num_bytes` bytes at `offset`, as the shard says it;
  // null: they are not inside, or not aligned as floats are.
  const char* At(uint64_t offset, int64_t num_bytes) const;
  // Whether devices copy from it by themselves, as LazyRegistration says.
  bool IsRegistered(int device, TensorDevices* devices) const {
    return registration_.IsRegistered(device, devices);
  }
  // Whether all that has been read until now was of this generation.
  bool Holds(uint64_t generation) const;

 private:
  VersionRegion(int64_t num_bytes, std::unique_ptr<SharedMemory> memory)
      : num_bytes_(num_bytes),
        memory_(std::move(memory)),
        registration_(memory_->data(), num_bytes,
                      RegisteredMemory::Access::kRead) {}

  const int64_t num_bytes_;
  const std::unique_ptr<SharedMemory> memory_;
  mutable LazyRegistration registration_;  // of memory_
};

// Memory of one shard's process that is mapped, for one session.
struct MappedRegions {
  std::shared_ptr<RowRegion> row;  // null: rows are sent
  std::map<uint32_t, std::shared_ptr<const VersionRegion>> versions;
  // Parameters on the shard's device, by the caller's device that reads them.
  std::map<int, std::shared_ptr<const DeviceParameters>> parameters;
  // Returns the parameters for `device`; null: none are mapped for it, or
  // copies to it fail.
  const DeviceParameters* ParametersOn(int device) const;
  bool any() const { return row != nullptr || !versions.empty(); }
};

// A shard is asked at first use, and again in another epoch (it may have
// forgotten the job), when its process or the session is another one, when it
// had no row to give yet, or when a tensor was met on another device. What it
// still has stays as it is mapped, and lasts as long as somebody uses it.
// Thread-safe.
class ShardRegions {
 public:
  // REQUIRES: router, copies and devices outlive this.
  ShardRegions(const ClientOptions& options, const ShardRouter* router,
               CopyThreads* copies, TensorDevices* devices)
      : allowed_(options.shared_memory && options.local_sockets),
        token_file_(options.token_file),
        router_(router),
        copies_(copies),
        devices_(devices),
        takes_devices_(options.cuda_rows),
        leaves_out_(HasOptional(router->manifest())),
        entries_(router->num_shards()) {}

  // Returns what is mapped of the shard; never null, but empty where nothing is
  // shared. May wait some seconds for the shard.
  std::shared_ptr<const MappedRegions> Get(const JobView& view, int shard);

  // Calls RowRegion::Begin for each of `shards`, which the row is pushed to
  // now. Returns where it is written, as `shards`; null where it is sent.
  // `devices`: GrowingRow::devices.
  struct Placed {
    std::vector<RowRegion*> regions;
    std::vector<std::shared_ptr<const MappedRegions>> owners;  // of these
  };
  Placed Begin(const JobView& view, const RowName& row,
               const std::vector<int>& shards, const std::set<int>& devices);
  // Calls RowRegion::Land: the shard has all of the row.
  void Land(const JobView& view, const RowName& row, int shard);

 private:
  struct Entry {
    uint64_t session = 0;
    uint64_t life = 0;
    uint64_t epoch = 0;   // of the last answer; 0: none
    int num_devices = 0;  // that were met by then
    uint32_t row_number = 0;
    bool row_later = false;
    std::shared_ptr<const MappedRegions> regions;
  };
  static bool HasOptional(const Manifest& manifest);
  // Asks and maps what fits; `entry` is the shard's, with session and life.
  // After an error it is as it was.
  absl::Status Ask(const JobView& view, int shard, Entry* entry) const;
  // Maps the answer's versions; one that `entry` has stays as it is mapped.
  static absl::Status MapVersions(const v1::RegionReply& reply,
                                  absl::Span<const FileDescriptor> descriptors,
                                  const Entry& entry, MappedRegions* mapped);
  // Maps what the answer has of the shard's device, for each device of the
  // caller's that reaches it; what does not fit is left out. `descriptors`:
  // those behind the versions'.
  void MapDevices(const v1::RegionReply& reply,
                  absl::Span<const FileDescriptor> descriptors,
                  const Entry& entry, MappedRegions* mapped) const;

  const bool allowed_;
  const std::string token_file_;
  const ShardRouter* const router_;
  CopyThreads* const copies_;
  TensorDevices* const devices_;
  const bool takes_devices_;
  // Whether rows may leave out tensors: a row is begun before it is known
  // whether it does.
  const bool leaves_out_;
  Mutex mutex_;  // held while a shard is asked
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_SHARD_REGIONS_H_
