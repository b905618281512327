// Errors are INTERNAL, with the driver's words: who pushes hears them.
#include "worker_client/device_row.h"

#include <algorithm>
#include <atomic>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/device_memory/cuda_driver.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"

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
  AGG_ASSIGN_OR_RETURN(const auto context, devices->ContextOf(device));
  AGG_RETURN_IF_ERROR(context->driver().CheckReaches(device, uuid));
  AGG_ASSIGN_OR_RETURN(
      auto memory,
      SharedDeviceMemory::Map(context, fd.get(), host_bytes,
                              static_cast<int64_t>(said.mapped_bytes())));
  AGG_ASSIGN_OR_RETURN(auto stream, DeviceStream::Make(context));
  return absl::WrapUnique(
      new DeviceRow(context, std::move(memory), std::move(stream)));
}

DeviceRow::~DeviceRow() { Discard(); }

absl::Status DeviceRow::Copy(int64_t owner, const char* from, int64_t offset,
                             int64_t num_bytes) {
  AGG_DCHECK(offset >= 0 && offset + num_bytes <= memory_->num_bytes());
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

void RowDevices::Add(std::shared_ptr<DeviceRow> row) {
  MutexLock lock(&mutex_);
  const int device = row->device();
  rows_.try_emplace(device, std::move(row));
}

bool RowDevices::has(int device) const {
  MutexLock lock(&mutex_);
  return rows_.count(device) > 0;
}

bool RowDevices::has_any() const {
  MutexLock lock(&mutex_);
  return std::any_of(rows_.begin(), rows_.end(),
                     [](const auto& entry) { return entry.second != nullptr; });
}

void RowDevices::Begin(const std::set<int>& devices) {
  current_.clear();
  for (const int device : devices) {
    if (Find(device) != nullptr) continue;
    current_.clear();
    return;
  }
}

DeviceRow* RowDevices::Find(int device) {
  const auto known = current_.find(device);
  if (known != current_.end()) return known->second.get();
  MutexLock lock(&mutex_);
  const auto there = rows_.find(device);
  if (there == rows_.end() || there->second == nullptr) return nullptr;
  return current_.insert(*there).first->second.get();
}

absl::StatusOr<RowDevices::Copies> RowDevices::Mark(
    const std::set<DeviceRow*>& rows) {
  Copies copies;
  for (DeviceRow* const row : rows) {
    AGG_ASSIGN_OR_RETURN(auto mark, row->Mark());
    copies.emplace_back(row, std::move(mark));
  }
  return copies;
}

absl::Status RowDevices::Await(Copies copies) {
  absl::Status status;
  for (auto& [row, copied] : copies) {
    status.Update(row->Await(std::move(copied)));
  }
  return status;
}

void RowDevices::GiveUp() {
  for (const auto& [device, row] : current_) row->Discard();
  MutexLock lock(&mutex_);
  for (const auto& [device, row] : current_) rows_[device] = nullptr;
  current_.clear();
}

// The reader's half of a lock without a wait: copy, then look whether the
// generation is still the one that was said.

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
  AGG_ASSIGN_OR_RETURN(const auto context, devices->ContextOf(device));
  AGG_RETURN_IF_ERROR(context->driver().CheckReaches(device, uuid));
  AGG_ASSIGN_OR_RETURN(
      auto page,
      SharedMemory::Map(generation, kPageBytes, SharedMemory::Others::kRead));
  AGG_ASSIGN_OR_RETURN(
      auto mapped,
      SharedDeviceMemory::Map(context, memory.get(),
                              static_cast<int64_t>(said.bytes()),
                              static_cast<int64_t>(said.mapped_bytes())));
  AGG_ASSIGN_OR_RETURN(auto stream, DeviceStream::Make(context));
  return absl::WrapUnique(
      new DeviceParameters(said.number(), context, std::move(mapped),
                           std::move(page), std::move(stream)));
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
  AGG_DCHECK(
      std::all_of(places.begin(), places.end(), [this](const Place& place) {
        return Has(place.offset, place.num_bytes);
      }));
  for (size_t next = 0; next < places.size();) {
    Place run = places[next++];
    while (next < places.size() && places[next].owner == run.owner &&
           places[next].offset == run.offset + run.num_bytes &&
           places[next].to == run.to + run.num_bytes / sizeof(float)) {
      run.num_bytes += places[next++].num_bytes;
    }
    if (run.num_bytes == 0) continue;
    ++num_copies_;
    const absl::Status status =
        stream_->Copy(run.to, memory_->data() + run.offset, run.num_bytes);
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
