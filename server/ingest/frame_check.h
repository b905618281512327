// Whether a frame fits the job: a pure function of its header.
#ifndef AGG_SERVER_INGEST_FRAME_CHECK_H_
#define AGG_SERVER_INGEST_FRAME_CHECK_H_

#include "absl/status/status.h"
#include "server/ingest/frame.h"
#include "server/ingest/shard_layout.h"

namespace agg {

// INVALID_ARGUMENT naming the field, its value and what is allowed: no slice,
// slices that do not ascend, do not exist or live on another shard, another
// number of checksums, another dtype (rows: push_dtype, seeds: f32), payload
// bytes that are not the slices', or over the frame cap; absent slices of a
// tensor that is not optional, that the frame also brings, or in a seed.
absl::Status CheckFrame(const FrameHeader& header, const ShardLayout& layout,
                        DType push_dtype);

}  // namespace agg

#endif  // AGG_SERVER_INGEST_FRAME_CHECK_H_
