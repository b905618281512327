// The reader's half of a lock without a wait: copy, then look whether the
// generation is still the one that was said.
#include "worker_client/device_parameters.h"

#include <algorithm>
#include <atomic>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/device_memory/cuda_driver.h"

namespace agg {
namespace {

constexpr int64_t kPageBytes = 4096;  // as proto/region.proto says

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceParameters>> DeviceParameters::Map(
    const v1::DeviceRegion& said, const FileDescriptor& memory,
    const FileDescriptor& generation, int device, TensorDevices* devices) {
  DeviceUuid uuid;
  if (said.dtype() != v1::F32 || said.uuid().size() != uuid.size()) {
    return absl::InternalError(
        absl::StrCat("the shard's parameters on its device are of dtype ",
                     said.dtype(), ", with a UUID of ", said.uuid().size()));
  }
  std::copy(said.uuid().begin(), said.uuid().end(), uuid.begin());
  const auto context = devices->ContextOf(device);
  if (!context.ok()) return context.status();
  const absl::Status reaches = (*context)->driver().CheckReaches(device, uuid);
  if (!reaches.ok()) return reaches;
  auto page =
      SharedMemory::Map(generation, kPageBytes, SharedMemory::Others::kRead);
  if (!page.ok()) return page.status();
  auto mapped = SharedDeviceMemory::Map(
      *context, memory.get(), static_cast<int64_t>(said.bytes()),
      static_cast<int64_t>(said.mapped_bytes()));
  if (!mapped.ok()) return mapped.status();
  auto stream = DeviceStream::Make(*context);
  if (!stream.ok()) return stream.status();
  return absl::WrapUnique(
      new DeviceParameters(said.number(), *context, *std::move(mapped),
                           *std::move(page), *std::move(stream)));
}

bool DeviceParameters::Has(uint64_t offset, int64_t num_bytes) const {
  const auto all = static_cast<uint64_t>(memory_->num_bytes());
  return offset % alignof(float) == 0 && offset <= all &&
         static_cast<uint64_t>(num_bytes) <= all - offset;
}

absl::Status DeviceParameters::Note(const absl::Status& status) const {
  if (!status.ok()) failed_ = true;
  return DeviceError(status);
}

absl::Status DeviceParameters::Begin(absl::Span<const Place> places) const {
  for (const Place& place : places) {
    if (place.num_bytes == 0) continue;
    const absl::Status status = stream_->Copy(
        place.to, memory_->data() + place.offset, place.num_bytes);
    if (!status.ok()) return Note(status);
  }
  return absl::OkStatus();
}

absl::Status DeviceParameters::Finish(uint64_t generation) const {
  const absl::Status status = stream_->Synchronize();
  if (!status.ok()) return Note(status);
  // What was copied before stays before.
  std::atomic_thread_fence(std::memory_order_acquire);
  const auto* const now =
      reinterpret_cast<const std::atomic<uint64_t>*>(page_->data());
  if (now->load(std::memory_order_relaxed) == generation) return status;
  return absl::AbortedError(absl::StrCat("generation ", generation,
                                         " of the parameters on the device was "
                                         "replaced while it was being copied"));
}

}  // namespace agg
