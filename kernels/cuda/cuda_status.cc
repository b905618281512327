// Memory that has run out is RESOURCE_EXHAUSTED, any other error INTERNAL;
// the text names the call and its line.
#include "kernels/cuda/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace agg::cuda {

absl::Status CudaStatus(cudaError_t error, absl::string_view call,
                        absl::string_view file, int line) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message = absl::StrCat(
      "CUDA: ", cudaGetErrorName(error), " (", cudaGetErrorString(error),
      ") from ", call, " at ", file, ":", line);
  return error == cudaErrorMemoryAllocation
             ? absl::ResourceExhaustedError(message)
             : absl::InternalError(message);
}

}  // namespace agg::cuda
