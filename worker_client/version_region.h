// A shard's memory in which published versions lie (P40).
#ifndef AGG_WORKER_CLIENT_VERSION_REGION_H_
#define AGG_WORKER_CLIENT_VERSION_REGION_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device_memory/registered_memory.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "server/base/shared_memory.h"
#include "worker_client/lazy_registration.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// A region that is mapped to be read. The shard overwrites it with another
// version when it needs the memory, and says so before, by the generation.
// Thread-safe.
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

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_VERSION_REGION_H_
