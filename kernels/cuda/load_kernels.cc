#include "kernels/cuda/load_kernels.h"

#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_tile.h"
#include "kernels/cuda/update_kernel.h"

namespace agg::cuda {

absl::Status LoadKernels(bool double_float) {
  AGG_RETURN_IF_CUDA_ERROR(double_float ? LoadGramDoubleFloat() : LoadGram());
  AGG_RETURN_IF_CUDA_ERROR(LoadGramPairs());
  AGG_RETURN_IF_CUDA_ERROR(LoadGramInt8());
  AGG_RETURN_IF_CUDA_ERROR(LoadTiles());
  AGG_RETURN_IF_CUDA_ERROR(LoadUpdate());
  return absl::OkStatus();
}

}  // namespace agg::cuda
