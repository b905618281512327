// What a manifest takes in memory: a pure function of how many tensors,
// dimensions and bytes of text it has, so that it can be booked before it is
// made.
#ifndef AGG_PROTO_MANIFEST_SIZE_H_
#define AGG_PROTO_MANIFEST_SIZE_H_

#include <cstdint>

#include "proto/shard_plan.h"

namespace agg {

struct ManifestSize {
  int64_t tensors = 0;
  int64_t dimensions = 0;  // of all tensors
  int64_t text_bytes = 0;  // of names and groups
};

// Most tensors that ValidateManifest allows.
inline constexpr int64_t kMostTensors = 100000;

ManifestSize SizeOf(const Manifest& manifest);

// Returns about how many bytes one Manifest takes, with what malloc adds to
// each piece.
int64_t ManifestBytes(const ManifestSize& size);

}  // namespace agg

#endif  // AGG_PROTO_MANIFEST_SIZE_H_
