// The frames of a Pull by who reads the version in shared memory (P40).
#ifndef AGG_SERVER_RPC_PLACE_FRAMES_H_
#define AGG_SERVER_RPC_PLACE_FRAMES_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "server/shard/published_version.h"

namespace agg {

// At least one frame; none if the version is not in shared memory. The slices
// that `first_slices` names come first (P42), then the others, ascending; those
// of other shards, or of none, are passed over.
// `takes_device`: places on the device if float32 is asked for and the version
// is there, else in shared memory; *on_device says which.
std::vector<grpc::ByteBuffer> MakePlaceFrames(
    const PublishedVersion& version, DType dtype,
    absl::Span<const uint32_t> first_slices, bool takes_device,
    bool* on_device);

}  // namespace agg

#endif  // AGG_SERVER_RPC_PLACE_FRAMES_H_
