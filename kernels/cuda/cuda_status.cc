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

bool MayBeLost(const absl::Status& status) {
  return absl::IsInternal(status) || absl::IsResourceExhausted(status);
}

absl::Status LostIf(cudaError_t device, const absl::Status& status) {
  cudaGetLastError();  // so that the next call does not report this one's
  if (device == cudaSuccess) return status;
  return absl::UnavailableError(
      absl::StrCat("the CUDA device is lost: ", status.message()));
}

}  // namespace agg::cuda
