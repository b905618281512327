// Writes one shard's part of a checkpoint.
#ifndef AGG_SERVER_CHECKPOINT_PART_WRITER_H_
#define AGG_SERVER_CHECKPOINT_PART_WRITER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "server/checkpoint/durable_file.h"

namespace agg {

// A shard's arrays as they were at the checkpoint's version: they do not change
// while the part is written.
struct PartSource {
  const ShardPlan* plan = nullptr;
  int ordinal = 0;
  int num_arrays = 1;  // parameters included, at most 3
  // The float32 values of a slice (an index into plan->slices) in array 0
  // (parameters), 1 (state0) or 2 (state1); valid until the next call. An
  // error, such as CANCELLED, ends the writing with it.
  std::function<absl::StatusOr<absl::Span<const float>>(int32_t slice,
                                                        int array)>
      values;
};

// Appends the part's bytes, which depend on the values alone. Errors: those of
// the file and of source.values.
absl::Status AppendPart(const PartSource& source, DurableFile* file);

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_PART_WRITER_H_
