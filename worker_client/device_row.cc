// Errors are INTERNAL, with the driver's words: who pushes hears them.
#include "worker_client/device_row.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/device_memory/cuda_driver.h"

namespace agg {

absl::StatusOr<std::unique_ptr<DeviceRow>> DeviceRow::Map(
    const v1::DeviceRegion& said, DType dtype, int64_t host_bytes,
    const FileDescriptor& fd, int device, TensorDevices* devices) {
  DeviceUuid uuid;
  if (static_cast<int>(said.dtype()) != static_cast<int>(dtype) ||
      said.bytes() < static_cast<uint64_t>(host_bytes) ||
      said.bytes() > said.mapped_bytes() || said.uuid().size() != uuid.size()) {
    return absl::InternalError(absl::StrCat(
        "the device's side of the shard's row is of dtype ", said.dtype(),
        ", with ", said.bytes(), " bytes and a UUID of ", said.uuid().size(),
        ", mapped are ", said.mapped_bytes(), "; the row has ", host_bytes,
        " bytes"));
  }
  std::copy(said.uuid().begin(), said.uuid().end(), uuid.begin());
  const auto context = devices->ContextOf(device);
  if (!context.ok()) return context.status();
  const absl::Status reaches = (*context)->driver().CheckReaches(device, uuid);
  if (!reaches.ok()) return reaches;
  auto memory =
      SharedDeviceMemory::Map(*context, fd.get(), host_bytes,
                              static_cast<int64_t>(said.mapped_bytes()));
  if (!memory.ok()) return memory.status();
  auto stream = DeviceStream::Make(*context);
  if (!stream.ok()) return stream.status();
  return absl::WrapUnique(
      new DeviceRow(*context, *std::move(memory), *std::move(stream)));
}

DeviceRow::~DeviceRow() { Discard(); }

absl::Status DeviceRow::Copy(int64_t owner, const char* from, int64_t offset,
                             int64_t num_bytes) {
  if (num_bytes_ > 0 && owner == owner_ && from == from_ + num_bytes_ &&
      offset == offset_ + num_bytes_) {
    num_bytes_ += num_bytes;
    return absl::OkStatus();
  }
  const absl::Status status = Flush();
  owner_ = owner;
  from_ = from;
  offset_ = offset;
  num_bytes_ = num_bytes;
  return status;
}

absl::Status DeviceRow::Flush() {
  if (num_bytes_ == 0) return absl::OkStatus();
  ++num_copies_;
  const absl::Status status =
      stream_->Copy(memory_->data() + offset_, from_, num_bytes_);
  num_bytes_ = 0;
  return DeviceError(status);
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> DeviceRow::Mark() {
  absl::Status status = Flush();
  if (status.ok() && free_.empty()) {
    auto made = DeviceEvent::Make(context_);
    status = DeviceError(made.status());
    if (made.ok()) free_.push_back(*std::move(made));
  }
  if (status.ok()) status = DeviceError(free_.back()->Record(*stream_));
  if (!status.ok()) return status;
  std::unique_ptr<DeviceEvent> event = std::move(free_.back());
  free_.pop_back();
  return event;
}

absl::Status DeviceRow::Await(std::unique_ptr<DeviceEvent> event) {
  const absl::Status status = event->Synchronize();
  free_.push_back(std::move(event));
  return DeviceError(status);
}

void DeviceRow::Discard() {
  num_bytes_ = 0;
  stream_->Synchronize().IgnoreError();
}

}  // namespace agg
