// Whether a frame fits the job: a pure function of its header, which runs
// before anything is claimed or copied.
#ifndef AGG_SERVER_INGEST_FRAME_CHECK_H_
#define AGG_SERVER_INGEST_FRAME_CHECK_H_

#include "absl/status/status.h"
#include "server/ingest/frame.h"
#include "server/ingest/shard_layout.h"

namespace agg {

// INVALID_ARGUMENT naming the field, its value and what is allowed, if
// - there is no slice, or slices do not ascend, do not exist, or are on another
//   shard;
// - the number of checksums is not that of the slices, or not 0 of a frame in
//   place;
// - a frame in place is a seed's, or has a payload;
// - the dtype is not push_dtype, or not f32 in a seed;
// - the payload's size is not the sum of its slices', or over the frame cap;
// - an absent slice is in a seed, also among the slices that the frame brings,
//   or of a tensor that is not optional.
absl::Status CheckFrame(const FrameHeader& header, const ShardLayout& layout,
                        DType push_dtype);

}  // namespace agg

#endif  // AGG_SERVER_INGEST_FRAME_CHECK_H_
