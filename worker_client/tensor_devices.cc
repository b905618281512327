// A pointer is looked up with a call of the driver that waits for nothing.
#include "worker_client/tensor_devices.h"

#include <link.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/device_memory/cuda_abi.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"

namespace agg {

// Asks, and sleeps in between: gRPC's timers, which end at whole milliseconds,
// are too coarse for a round of some of them.

namespace {

absl::StatusOr<bool> AllReached(absl::Span<const SharedMark> marks) {
  for (const SharedMark& mark : marks) {
    const absl::StatusOr<bool> reached = mark->Reached();
    if (!reached.ok()) return DeviceError(reached.status());
    if (!*reached) return false;
  }
  return true;
}

}  // namespace

absl::Duration MarkPauses::Next(absl::Time now) {
  begun_ = std::min(begun_, now);
  return std::clamp((now - begun_) / 16, kShortest, kLongest);
}

absl::Status MarkTimeout(const char* what) {
  return absl::DeadlineExceededError(absl::StrCat(
      what, ": the device has not done, within transfer_timeout, what its ",
      "default stream was given before the call; check whether a kernel of ",
      "this process hangs, or allow more time"));
}

absl::Status AwaitMarks(absl::Span<const SharedMark> marks, const char* what,
                        absl::Time deadline,
                        const std::function<absl::Status()>& cancelled) {
  MarkPauses pauses;
  while (true) {
    AGG_RETURN_IF_ERROR(cancelled());
    AGG_ASSIGN_OR_RETURN(const bool reached, AllReached(marks));
    if (reached) return absl::OkStatus();
    const absl::Time now = absl::Now();
    if (now >= deadline) return MarkTimeout(what);
    absl::SleepFor(std::min(pauses.Next(now), deadline - now));
  }
}

namespace {

// Counts the libraries that the process has loaded so far. (50 us were measured
// for a look for a library that is not there, and 0.02 us for this.)
uint64_t NumLoads() {
  uint64_t loads = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t /*size*/, void* to) {
        *static_cast<uint64_t*>(to) = info->dlpi_adds;
        return 1;  // the first one knows it
      },
      &loads);
  return loads;
}

}  // namespace

absl::Status DeviceError(const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InternalError(status.message());
}

std::shared_ptr<const CudaDriver> TensorDevices::driver() {
  MutexLock lock(&mutex_);
  if (driver_ != nullptr) return driver_;
  const uint64_t loads = NumLoads();
  if (loads == looked_after_) return nullptr;
  looked_after_ = loads;
  driver_ = CudaDriver::FindLoaded();
  return driver_;
}

absl::StatusOr<int> TensorDevices::DeviceOf(const CudaDriver* driver,
                                            const void* data) {
  const absl::StatusOr<std::optional<int>> device = driver->DeviceOf(data);
  if (!device.ok()) return DeviceError(device.status());
  if (!device->has_value()) return kHost;
  MutexLock lock(&mutex_);
  contexts_.try_emplace(**device);
  return **device;
}

absl::StatusOr<std::vector<int>> TensorDevices::DevicesOf(
    absl::Span<const TensorView> views) {
  std::vector<int> devices(views.size(), kHost);
  const std::shared_ptr<const CudaDriver> asked = driver();
  if (asked == nullptr) return devices;
  for (size_t i = 0; i < views.size(); ++i) {
    if (IsAbsent(views[i]) || views[i].num_elements == 0) continue;
    AGG_ASSIGN_OR_RETURN(const int device,
                         DeviceOf(asked.get(), ElementsFrom(views[i], 0)));
    devices[i] = device;
  }
  return devices;
}

absl::StatusOr<std::vector<int>> TensorDevices::DevicesOf(
    absl::Span<const MutableTensorView> views) {
  std::vector<TensorView> read;
  for (const MutableTensorView& view : views) {
    read.emplace_back(
        absl::MakeConstSpan(view.data, static_cast<size_t>(view.num_elements)));
  }
  return DevicesOf(read);
}

std::vector<int> TensorDevices::met() const {
  MutexLock lock(&mutex_);
  std::vector<int> met;
  for (const auto& [device, context] : contexts_) met.push_back(device);
  return met;
}

absl::StatusOr<std::shared_ptr<const DeviceContext>> TensorDevices::ContextOf(
    int device) {
  MutexLock lock(&mutex_);
  std::shared_ptr<const DeviceContext>& context = contexts_[device];
  if (context == nullptr) {
    auto retained = DeviceContext::Retain(driver_, device);
    if (!retained.ok()) return DeviceError(retained.status());
    context = *std::move(retained);
  }
  return context;
}

absl::StatusOr<SharedMark> TensorDevices::Mark(int device) {
  AGG_ASSIGN_OR_RETURN(const auto context, ContextOf(device));
  auto event = DeviceEvent::Make(context);
  if (!event.ok()) return DeviceError(event.status());
  const absl::Status recorded = (*event)->RecordDefault();
  if (!recorded.ok()) return DeviceError(recorded);
  return std::make_shared<const DeviceMark>(*std::move(event));
}

absl::StatusOr<std::map<int, SharedMark>> TensorDevices::MarksOf(
    absl::Span<const int> devices) {
  std::map<int, SharedMark> marks;
  for (const int device : devices) {
    if (device == kHost || marks.count(device) > 0) continue;
    AGG_ASSIGN_OR_RETURN(SharedMark mark, Mark(device));
    marks[device] = std::move(mark);
  }
  return marks;
}

absl::StatusOr<TensorDevices::Lane> TensorDevices::TakeLane(int device) {
  {
    MutexLock lock(&mutex_);
    std::vector<Lane>& lanes = lanes_[device];
    if (!lanes.empty()) {
      Lane lane = std::move(lanes.back());
      lanes.pop_back();
      return lane;
    }
  }
  AGG_ASSIGN_OR_RETURN(const auto context, ContextOf(device));
  return DeviceStream::Make(context);
}

absl::Status TensorDevices::RunOnLane(
    int device, const std::function<absl::Status(DeviceStream*)>& copy) {
  absl::StatusOr<Lane> lane = TakeLane(device);
  if (!lane.ok()) return DeviceError(lane.status());
  absl::Status status = copy(lane->get());
  // Also after an error: the caller's memory is the caller's again.
  status.Update((*lane)->Synchronize());
  MutexLock lock(&mutex_);
  lanes_[device].push_back(*std::move(lane));
  return DeviceError(status);
}

absl::Status TensorDevices::CopyToHost(int device, void* to, const void* from,
                                       int64_t num_bytes) {
  if (num_bytes == 0) return absl::OkStatus();
  return RunOnLane(device, [=](DeviceStream* stream) {
    return stream->CopyToHost(to, from, num_bytes);
  });
}

absl::Status TensorDevices::CopyToDevice(int device, void* to, const void* from,
                                         int64_t num_bytes) {
  if (num_bytes == 0) return absl::OkStatus();
  return RunOnLane(device, [=](DeviceStream* stream) {
    return stream->CopyToDevice(to, from, num_bytes);
  });
}

std::unique_ptr<RegisteredMemory> TensorDevices::Register(
    int device, void* data, int64_t num_bytes,
    RegisteredMemory::Access access) {
  const auto context = ContextOf(device);
  if (!context.ok()) return nullptr;
  auto made = RegisteredMemory::Register(*context, data, num_bytes, access);
  return made.ok() ? *std::move(made) : nullptr;
}

absl::StatusOr<std::unique_ptr<PinnedHostMemory>> TensorDevices::TakePinned(
    int device) {
  {
    MutexLock lock(&mutex_);
    if (!pinned_.empty()) {
      std::unique_ptr<PinnedHostMemory> taken = std::move(pinned_.back());
      pinned_.pop_back();
      return taken;
    }
  }
  AGG_ASSIGN_OR_RETURN(const auto context, ContextOf(device));
  auto memory = PinnedHostMemory::Allocate(context, kPinnedBytes);
  if (!memory.ok()) return DeviceError(memory.status());
  return memory;
}

void TensorDevices::GiveBack(std::unique_ptr<PinnedHostMemory> memory) {
  MutexLock lock(&mutex_);
  pinned_.push_back(std::move(memory));
}

absl::StatusOr<const char*> PinnedCopy::Take(int device, const void* from,
                                             int64_t num_bytes) {
  AGG_DCHECK(devices_ != nullptr && num_bytes <= TensorDevices::kPinnedBytes);
  AGG_ASSIGN_OR_RETURN(memory_, devices_->TakePinned(device));
  AGG_RETURN_IF_ERROR(
      devices_->CopyToHost(device, memory_->data(), from, num_bytes));
  return memory_->data();
}

}  // namespace agg
