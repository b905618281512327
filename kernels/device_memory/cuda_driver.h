// The CUDA driver, opened at run time: the binary carries no reference to it,
// and runs where there is none.
#ifndef AGG_KERNELS_DEVICE_MEMORY_CUDA_DRIVER_H_
#define AGG_KERNELS_DEVICE_MEMORY_CUDA_DRIVER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device_memory/cuda_abi.h"

namespace agg {

using DeviceUuid = std::array<uint8_t, 16>;

// Writes a UUID as nvidia-smi does: "GPU-" and hexadecimal digits in groups.
std::string FormatUuid(const DeviceUuid& uuid);

// Devices have the numbers that CUDA gives them (CUDA_VISIBLE_DEVICES). Lives
// to the end of the process once loaded: it is never closed, since its threads
// may still run. Thread-safe.
class CudaDriver {
 public:
  // Opens and initialises it. `path`: its file; empty: what AGG_CUDA_DRIVER in
  // the environment names, else libcuda.so.1. NOT_FOUND: there is none;
  // UNIMPLEMENTED, naming it: it lacks a function; else as Check.
  static absl::StatusOr<std::shared_ptr<const CudaDriver>> Load(
      const std::string& path);

  // Returns the driver that this process has loaded already, or that
  // AGG_CUDA_DRIVER names; null: none, or none that works. It is not
  // initialised here, so that a process that only might use a device can still
  // fork. Ask again, but not for every address: who uses a device may come
  // later, and a look for the file takes some system calls until it is found.
  static std::shared_ptr<const CudaDriver> FindLoaded();

  // Path of the file that was opened.
  const std::string& path() const { return path_; }

  // The functions themselves. Most want a current context (device_context.h).
  const cuda_abi::Functions& call() const { return functions_; }
  // Returns OK, or the name of the call, the code and what the driver calls it:
  // RESOURCE_EXHAUSTED when memory has run out, UNIMPLEMENTED for what is not
  // supported, else INTERNAL.
  absl::Status Check(int code, absl::string_view call) const;

  // Returns the number of visible devices; UuidOf returns the UUID of one.
  // Errors as of Check.
  absl::StatusOr<int> NumDevices() const;
  absl::StatusOr<DeviceUuid> UuidOf(int device) const;
  // Returns the visible device that has the UUID. NOT_FOUND: none has it.
  absl::StatusOr<int> DeviceWith(const DeviceUuid& uuid) const;
  // Returns OK if the device's memory can be exported to other processes as a
  // file descriptor. UNIMPLEMENTED, with the reason: it cannot.
  absl::Status CheckShares(int device) const;
  // Returns OK, unless `device` has no way to the memory of the visible device
  // with that UUID, which is another one: UNIMPLEMENTED. Of a device that is
  // not visible, only an attempt to map its memory tells: OK.
  absl::Status CheckReaches(int device, const DeviceUuid& uuid) const;

  // Returns the device whose memory `address` is in; nullopt for the host's,
  // which includes what the driver does not know, and all memory where no
  // device can have any: before anybody has initialised the driver, without a
  // device, and where the library is a toolkit's stub. Other errors are those
  // of Check, and say nothing of whose it is.
  // Neither waits nor needs a context.
  absl::StatusOr<std::optional<int>> DeviceOf(const void* address) const;

 private:
  CudaDriver(std::string path, const cuda_abi::Functions& functions)
      : path_(std::move(path)), functions_(functions) {}

  // `flags`: of dlopen, besides the usual ones.
  static absl::StatusOr<std::shared_ptr<const CudaDriver>> Open(
      const std::string& path, int flags);
  absl::StatusOr<int> Attribute(int attribute, int device) const;

  const std::string path_;
  const cuda_abi::Functions functions_;
};

}  // namespace agg

#endif  // AGG_KERNELS_DEVICE_MEMORY_CUDA_DRIVER_H_
