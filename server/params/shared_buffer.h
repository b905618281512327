// A buffer in shared memory: a row that its worker writes itself, or a version
// that workers read (P39, P40).
#ifndef AGG_SERVER_PARAMS_SHARED_BUFFER_H_
#define AGG_SERVER_PARAMS_SHARED_BUFFER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/base/shared_memory.h"

namespace agg {

// What other processes map: the buffer's bytes, and behind them, at the next
// multiple of kHeadAlignment, the number of its generation (8 bytes). Owned by
// the buffer and by who hands it out. Thread-safe.
class Region {
 public:
  static constexpr int64_t kHeadAlignment = 4096;
  // Where the generation is, and how much is mapped.
  static int64_t HeadOffset(int64_t num_bytes) {
    return (num_bytes + kHeadAlignment - 1) / kHeadAlignment * kHeadAlignment;
  }
  static int64_t MappedBytes(int64_t num_bytes) {
    return HeadOffset(num_bytes) + kHeadAlignment;
  }

  Region(std::unique_ptr<SharedMemory> memory, int64_t num_bytes);

  uint32_t number() const { return number_; }  // of the process; never 0
  int64_t num_bytes() const { return num_bytes_; }
  char* data() const { return memory_->data(); }
  int fd() const { return memory_->fd(); }

  uint64_t generation() const;
  // Must be called before bytes of a version are overwritten: who has read them
  // sees another generation then.
  void BeginGeneration();

  // SharedMemory::EmptyAtEnd, when its last owner lets go. REQUIRES: of a row.
  void EmptyAtEnd() { memory_->EmptyAtEnd(); }

  absl::Status Populate() { return memory_->Populate(); }

 private:
  const uint32_t number_;
  const int64_t num_bytes_;
  const std::unique_ptr<SharedMemory> memory_;
};

class SharedBuffer : public Buffer {
 public:
  // BufferUse::kRow: others may write it. Else they may only read it. As
  // SharedMemory::Create.
  static absl::StatusOr<std::unique_ptr<SharedBuffer>> Allocate(
      BufferUse use, int64_t num_bytes);
  // Makes it a buffer of `backend`, which outlives it: a device gets its part,
  // and copies without staging memory, or else with it, with a line in the log,
  // and counted. `populated`, if it is not null: then takes all of the memory,
  // with SharedMemory::Populate's answer; a backend wants to choose where pages
  // are before anybody touches them. Errors as Backend::Adopt. REQUIRES: called
  // once, with the use that it was allocated for.
  absl::Status AdoptBy(Backend* backend, BufferUse use,
                       absl::Status* populated = nullptr);

  // The region of a SharedBuffer; null for another buffer, and for null.
  static std::shared_ptr<Region> RegionOf(const Buffer* buffer);

  char* host() const override { return region_->data(); }
  int64_t num_bytes() const override { return region_->num_bytes(); }
  char* device() const override {
    return adopted_ == nullptr ? nullptr : adopted_->device();
  }
  const DeviceShare* device_share() const override {
    return adopted_ == nullptr ? nullptr : adopted_->device_share();
  }

 private:
  explicit SharedBuffer(std::shared_ptr<Region> region)
      : region_(std::move(region)) {}
  const std::shared_ptr<Region> region_;
  std::unique_ptr<Buffer> adopted_;  // ends before the region
};

// Allocates in shared memory if `shared`, and if there is none, with a line in
// the log and counted, the backend's own. Errors as Backend::Allocate.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateHost(Backend* backend,
                                                     BufferUse use,
                                                     int64_t num_bytes,
                                                     bool shared);

// Buffers that this process wanted to share and has in private memory, and
// such as are worth less than was wanted, since it started.
struct SharedFallbacks {
  int64_t rows_refused = 0;  // the system refused a call, which the log names
  int64_t rows_no_memory = 0;
  int64_t versions_refused = 0;
  int64_t versions_no_memory = 0;
  // Shared, and not registered with the device: it copies by way of staging
  // memory.
  int64_t rows_staged = 0;
  int64_t versions_staged = 0;
};
// Thread-safe.
SharedFallbacks CountSharedFallbacks();

}  // namespace agg

#endif  // AGG_SERVER_PARAMS_SHARED_BUFFER_H_
