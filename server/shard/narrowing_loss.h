// Looks at what narrowing a version to the job's pull_dtype has lost.
#ifndef AGG_SERVER_SHARD_NARROWING_LOSS_H_
#define AGG_SERVER_SHARD_NARROWING_LOSS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "server/round/phase.h"

namespace agg {

// Adds how many of the slice's values are finite, and infinite in `dtype`; a
// first one sets loss->slice, if that is not a smaller one. kF32: none.
void AddInfinite(absl::Span<const float> values, DType dtype, int32_t slice,
                 NarrowingLoss* loss);

// Adds how many of the values are not zero, and how many of these are zero in
// `dtype`.
void AddVanished(absl::Span<const float> values, DType dtype,
                 NarrowingLoss* loss);

}  // namespace agg

#endif  // AGG_SERVER_SHARD_NARROWING_LOSS_H_
