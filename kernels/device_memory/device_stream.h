// Streams, events and pinned memory of the driver, for those that copy and
// compute nothing.
#ifndef AGG_KERNELS_DEVICE_MEMORY_DEVICE_STREAM_H_
#define AGG_KERNELS_DEVICE_MEMORY_DEVICE_STREAM_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device_memory/cuda_abi.h"
#include "kernels/device_memory/device_context.h"

namespace agg {

class DeviceStream;

// How often a wait asks the driver before its thread sleeps: some 50 us, which
// is what it takes to wake one (an H100 in a virtual machine: 75 us for a call
// of two small kernels, from which the results are awaited).
inline constexpr int kQuestionsBeforeSleep = 64;

// A point in a stream's work, without time stamps. Threads that wait for it
// sleep. All errors are those of CudaDriver::Check. Each call makes the
// object's context current for itself. Thread-safe, as the driver is.
class DeviceEvent {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceEvent>> Make(
      std::shared_ptr<const DeviceContext> context);
  ~DeviceEvent();
  DeviceEvent(const DeviceEvent&) = delete;
  DeviceEvent& operator=(const DeviceEvent&) = delete;

  // Records the event behind what has been given to the stream, or to the
  // legacy default stream of the event's context. REQUIRES: the stream is of
  // that context.
  absl::Status Record(const DeviceStream& stream);
  absl::Status RecordDefault();
  // Waits on the host, asleep but at first; returns at once if the event was
  // never recorded. It takes as long as the stream takes, which may be for
  // ever.
  absl::Status Synchronize() const;
  // Whether Synchronize would not wait.
  absl::StatusOr<bool> IsDone() const;

  cuda_abi::Event get() const { return event_; }

 private:
  DeviceEvent(std::shared_ptr<const DeviceContext> context,
              cuda_abi::Event event)
      : context_(std::move(context)), event_(event) {}
  absl::Status RecordOn(cuda_abi::Stream stream);

  const std::shared_ptr<const DeviceContext> context_;
  const cuda_abi::Event event_;
};

// A stream that does not synchronise with the default stream.
class DeviceStream {
 public:
  static absl::StatusOr<std::unique_ptr<DeviceStream>> Make(
      std::shared_ptr<const DeviceContext> context);
  // Ends the stream. What it has been given is done all the same.
  ~DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  // Copies from and to any memory that the driver knows, of whatever device, or
  // of the host. Returns before the copy is done, but for host memory that is
  // not pinned.
  absl::Status Copy(void* to, const void* from, int64_t num_bytes);
  // Copies between a device and the host, in one of the directions, as Copy
  // does.
  absl::Status CopyToHost(void* to, const void* from, int64_t num_bytes);
  absl::Status CopyToDevice(void* to, const void* from, int64_t num_bytes);
  // Waits on the host for all work.
  absl::Status Synchronize();

  cuda_abi::Stream get() const { return stream_; }

 private:
  DeviceStream(std::shared_ptr<const DeviceContext> context,
               cuda_abi::Stream stream)
      : context_(std::move(context)), stream_(stream) {}

  const std::shared_ptr<const DeviceContext> context_;
  const cuda_abi::Stream stream_;
};

// Host memory that the device copies from and to by itself. Not cleared.
class PinnedHostMemory {
 public:
  // REQUIRES: num_bytes > 0.
  static absl::StatusOr<std::unique_ptr<PinnedHostMemory>> Allocate(
      std::shared_ptr<const DeviceContext> context, int64_t num_bytes);
  // REQUIRES: no copy is under way.
  ~PinnedHostMemory();
  PinnedHostMemory(const PinnedHostMemory&) = delete;
  PinnedHostMemory& operator=(const PinnedHostMemory&) = delete;

  char* data() const { return data_; }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  PinnedHostMemory(std::shared_ptr<const DeviceContext> context, char* data,
                   int64_t num_bytes)
      : context_(std::move(context)), data_(data), num_bytes_(num_bytes) {}

  const std::shared_ptr<const DeviceContext> context_;
  char* const data_;
  const int64_t num_bytes_;
};

}  // namespace agg

#endif  // AGG_KERNELS_DEVICE_MEMORY_DEVICE_STREAM_H_
