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

namespace agg::cuda {

// All: INTERNAL when a call fails (cuda_status.h). For one thread at a time.

// `error` of a device that cannot be used, with the versions of CUDA's runtime
// and driver and the driver that is needed (driver_need.h).
absl::Status WithVersions(const absl::Status& error);

// Takes the first visible device for this process. UNAVAILABLE
// "no CUDA device: .." when there is none, with the versions, or one that is
// too old.
absl::Status OpenDevice();

// Whether a plain Gram is accumulated in pairs of floats.
// REQUIRES: OpenDevice was OK.
absl::StatusOr<bool> WantsDoubleFloat(GramArithmetic gram);

// A line for the log: device, versions, and how Grams are computed. `cublas`:
// the library for more than `many_rows` rows, or why there is none.
// REQUIRES: OpenDevice was OK.
absl::StatusOr<std::string> DescribeDevice(
    bool double_float,
    const absl::StatusOr<std::unique_ptr<CublasLibrary>>& cublas,
    int64_t many_rows);

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUDA_DEVICE_H_
