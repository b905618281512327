// The driver's calls, each with its context made current around it.
#include "kernels/device_memory/device_stream.h"

#include <cassert>
#include <cstddef>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// Calls `function` of the driver with the context current.
template <class Function, class... Arguments>
absl::Status CallIn(const DeviceContext& context, const char* name,
                    Function* function, Arguments... arguments) {
  const CurrentContext current(context);
  if (!current.status().ok()) return current.status();
  return context.driver().Check(function(arguments...), name);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceEvent>> DeviceEvent::Make(
    std::shared_ptr<const DeviceContext> context) {
  cuda_abi::Event event = nullptr;
  const absl::Status status = CallIn(
      *context, "cuEventCreate", context->driver().call().cuEventCreate, &event,
      cuda_abi::kEventBlockingSync | cuda_abi::kEventDisableTiming);
  if (!status.ok()) return status;
  return absl::WrapUnique(new DeviceEvent(std::move(context), event));
}

DeviceEvent::~DeviceEvent() {
  CallIn(*context_, "cuEventDestroy",
         context_->driver().call().cuEventDestroy_v2, event_)
      .IgnoreError();
}

absl::Status DeviceEvent::RecordOn(cuda_abi::Stream stream) {
  return CallIn(*context_, "cuEventRecord",
                context_->driver().call().cuEventRecord, event_, stream);
}

absl::Status DeviceEvent::Record(const DeviceStream& stream) {
  return RecordOn(stream.get());
}

absl::Status DeviceEvent::RecordDefault() { return RecordOn(nullptr); }

absl::Status DeviceEvent::Synchronize() const {
  const CurrentContext current(*context_);
  if (!current.status().ok()) return current.status();
  const CudaDriver& driver = context_->driver();
  for (int i = 0; i < kQuestionsBeforeSleep; ++i) {
    const int code = driver.call().cuEventQuery(event_);
    if (code != cuda_abi::kNotReady) return driver.Check(code, "cuEventQuery");
  }
  return driver.Check(driver.call().cuEventSynchronize(event_),
                      "cuEventSynchronize");
}

absl::StatusOr<bool> DeviceEvent::IsDone() const {
  const CurrentContext current(*context_);
  if (!current.status().ok()) return current.status();
  const CudaDriver& driver = context_->driver();
  const int code = driver.call().cuEventQuery(event_);
  if (code == cuda_abi::kNotReady) return false;
  const absl::Status status = driver.Check(code, "cuEventQuery");
  if (!status.ok()) return status;
  return true;
}

absl::StatusOr<std::unique_ptr<DeviceStream>> DeviceStream::Make(
    std::shared_ptr<const DeviceContext> context) {
  cuda_abi::Stream stream = nullptr;
  const absl::Status status = CallIn(*context, "cuStreamCreate",
                                     context->driver().call().cuStreamCreate,
                                     &stream, cuda_abi::kStreamNonBlocking);
  if (!status.ok()) return status;
  return absl::WrapUnique(new DeviceStream(std::move(context), stream));
}

DeviceStream::~DeviceStream() {
  CallIn(*context_, "cuStreamDestroy",
         context_->driver().call().cuStreamDestroy_v2, stream_)
      .IgnoreError();
}

absl::Status DeviceStream::Copy(void* to, const void* from, int64_t num_bytes) {
  const CurrentContext current(*context_);
  if (!current.status().ok()) return current.status();
  const CudaDriver& driver = context_->driver();
  const int code =
      driver.call().cuMemcpyAsync(reinterpret_cast<cuda_abi::Pointer>(to),
                                  reinterpret_cast<cuda_abi::Pointer>(from),
                                  static_cast<size_t>(num_bytes), stream_);
  if (code == cuda_abi::kSuccess) return absl::OkStatus();
  return driver.Check(code,
                      absl::StrCat("cuMemcpyAsync of ", num_bytes, " bytes"));
}

absl::Status DeviceStream::CopyToHost(void* to, const void* from,
                                      int64_t num_bytes) {
  return CallIn(*context_, "cuMemcpyDtoHAsync",
                context_->driver().call().cuMemcpyDtoHAsync_v2, to,
                reinterpret_cast<cuda_abi::Pointer>(from),
                static_cast<size_t>(num_bytes), stream_);
}

absl::Status DeviceStream::CopyToDevice(void* to, const void* from,
                                        int64_t num_bytes) {
  return CallIn(*context_, "cuMemcpyHtoDAsync",
                context_->driver().call().cuMemcpyHtoDAsync_v2,
                reinterpret_cast<cuda_abi::Pointer>(to), from,
                static_cast<size_t>(num_bytes), stream_);
}

absl::Status DeviceStream::Synchronize() {
  return CallIn(*context_, "cuStreamSynchronize",
                context_->driver().call().cuStreamSynchronize, stream_);
}

absl::StatusOr<std::unique_ptr<PinnedHostMemory>> PinnedHostMemory::Allocate(
    std::shared_ptr<const DeviceContext> context, int64_t num_bytes) {
  assert(num_bytes > 0);
  void* memory = nullptr;
  const absl::Status status = CallIn(*context, "cuMemAllocHost",
                                     context->driver().call().cuMemAllocHost_v2,
                                     &memory, static_cast<size_t>(num_bytes));
  if (!status.ok()) return status;
  return absl::WrapUnique(new PinnedHostMemory(
      std::move(context), static_cast<char*>(memory), num_bytes));
}

PinnedHostMemory::~PinnedHostMemory() {
  CallIn(*context_, "cuMemFreeHost", context_->driver().call().cuMemFreeHost,
         static_cast<void*>(data_))
      .IgnoreError();
}

}  // namespace agg
