// Whether a request's buffers, ranges and spans fit together. Pure.
#ifndef AGG_KERNELS_CPU_REQUEST_CHECK_H_
#define AGG_KERNELS_CPU_REQUEST_CHECK_H_

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace agg {

// All: OK, or INVALID_ARGUMENT that names what does not fit. They make every
// later access of the kernels one inside its buffer.
absl::Status CheckGramRequest(const GramRequest& request);

// Each checks what its call reads and writes, and nothing else of the request.
absl::Status CheckUpdateRequest(const UpdateRequest& request);
absl::Status CheckCombineRequest(const UpdateRequest& request);
absl::Status CheckStepRequest(const UpdateRequest& request);
absl::Status CheckNormsRequest(const UpdateRequest& request);

// Checks the arguments of Backend::Load.
absl::Status CheckLoad(const OptimizerOptions& optimizer,
                       const Buffer& snapshot, const Buffer* master,
                       const Buffer* state0, const Buffer* state1,
                       const Buffer* narrowed_snapshot, DType narrowed_dtype);

// Checks those of Backend::Read and Write.
absl::Status CheckStateCopy(const Buffer* state, size_t num_values);

}  // namespace agg

#endif  // AGG_KERNELS_CPU_REQUEST_CHECK_H_
