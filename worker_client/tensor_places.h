// Where whole tensors lie in memory that holds slices.
#ifndef AGG_WORKER_CLIENT_TENSOR_PLACES_H_
#define AGG_WORKER_CLIENT_TENSOR_PLACES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_view.h"

namespace agg {

// The first element of each tensor of float32, in manifest order; null for one
// without elements. `slices`: the address of each of the job's slices.
// FAILED_PRECONDITION naming a tensor whose slices do not lie one behind the
// other, as those of a large one on several shards.
absl::StatusOr<std::vector<const float*>> TensorPlaces(
    const ShardRouter& router, absl::Span<const char* const> slices);

// The row's tensors in manifest order, whatever their pieces. REQUIRES: dtype
// is not kI8.
std::vector<RowView> RowViewsOf(const ShardRouter& router, DType dtype,
                                absl::Span<const char* const> slices);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TENSOR_PLACES_H_
