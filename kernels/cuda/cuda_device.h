// The device that the CUDA backend computes on: whether there is one, what it
// is good at, and a line about it for the log.
#ifndef AGG_KERNELS_CUDA_CUDA_DEVICE_H_
#define AGG_KERNELS_CUDA_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend_maker.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/numa_node.h"

namespace agg::cuda {

// --- All functions: INTERNAL when a call fails (cuda_status.h). For one thread
// at a time.
//
// `error` of a device that cannot be used, with the versions of CUDA's runtime
// and driver and the driver that is needed (driver_need.h).
absl::Status WithVersions(const absl::Status& error);

// Takes that one of the visible devices, for this process and for the calling
// thread. UNAVAILABLE "no CUDA device: .." when there is none, with the
// versions, or it is too old; INVALID_ARGUMENT when there are only others.
absl::Status OpenDevice(int device);

// Makes it the calling thread's device: each thread begins with device 0, and
// memory, streams, events and launches are its own device's. To be called
// before any other call of CUDA, the end of what it has made included.
// Thread-safe. REQUIRES: OpenDevice was OK.
absl::Status BindThread(int device);

// Host memory near the device; `sysfs` as in numa_node.h.
std::unique_ptr<const NumaNode> NodeNear(int device, const std::string& sysfs);

// Whether a plain Gram is accumulated in pairs of floats.
// REQUIRES: OpenDevice was OK.
absl::StatusOr<bool> WantsDoubleFloat(int device, GramArithmetic gram);

// A line for the log: device, versions, how Grams are computed and where host
// memory is. `cublas`: the library for more than `many_rows` rows, or why there
// is none. REQUIRES: OpenDevice was OK.
absl::StatusOr<std::string> DescribeDevice(
    int device, const NumaNode& node, bool double_float,
    const absl::StatusOr<std::unique_ptr<CublasLibrary>>& cublas,
    int64_t many_rows);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_DEVICE_H_
