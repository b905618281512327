// CUDA's error codes as absl::Status.
#ifndef AGG_KERNELS_CUDA_CUDA_STATUS_H_
#define AGG_KERNELS_CUDA_CUDA_STATUS_H_

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace agg::cuda {

// OK, or an error that names CUDA's code, the call and where it stands:
// RESOURCE_EXHAUSTED when memory ran out, else INTERNAL. Errors of earlier
// kernels show up in later calls.
absl::Status CudaStatus(cudaError_t error, absl::string_view call,
                        absl::string_view file, int line);

// Whether such an error may be that of a device which is lost.
bool MayBeLost(const absl::Status& status);
// UNAVAILABLE if `device`, which a later call has returned, is an error; else
// `status`.
absl::Status LostIf(cudaError_t device, const absl::Status& status);

}  // namespace agg::cuda

// Returns from the function if a CUDA call fails.
#define AGG_RETURN_IF_CUDA_ERROR(call)                              \
  do {                                                              \
    const absl::Status agg_cuda_status =                            \
        ::agg::cuda::CudaStatus((call), #call, __FILE__, __LINE__); \
    if (!agg_cuda_status.ok()) return agg_cuda_status;              \
  } while (false)

#endif  // AGG_KERNELS_CUDA_CUDA_STATUS_H_
