// Which shard holds which elements: a pure function of the manifest and the
// number of shards. Plain structs, no protobuf; every shard and every client
// computes the same plan.
#ifndef AGG_PROTO_SHARD_PLAN_H_
#define AGG_PROTO_SHARD_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace agg {

// Elements of a slice at most; a float32 slice is then one 4 MiB frame.
inline constexpr int64_t kMaxSliceElements = int64_t{1} << 20;
// Payload bytes of a frame at most.
inline constexpr int64_t kMaxFramePayloadBytes = int64_t{4} << 20;

// One named tensor. A shape of {} is a scalar (1 element); a 0 anywhere in it
// makes it empty (0 elements, no slice).
struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  std::string group;      // of optimizer hyperparameters; "" is the default
  bool optional = false;  // may be missing from a push, then counts as zero
};

// The job's tensors in their canonical order.
struct Manifest {
  std::vector<TensorSpec> tensors;
};

// Product of the shape. REQUIRES: a manifest that ValidateManifest passed.
int64_t NumElements(const TensorSpec& tensor);
int64_t NumElements(const Manifest& manifest);

// INVALID_ARGUMENT naming the tensor: no tensors at all, an empty or repeated
// name, a name or group over 512 bytes, a negative dimension, more than 8
// dimensions, more than 2^40 elements in total, or more than 100,000 tensors.
absl::Status ValidateManifest(const Manifest& manifest);

// OK when equal; INVALID_ARGUMENT naming the first tensor that differs and how.
absl::Status CompareManifests(const Manifest& job, const Manifest& other);

// Consecutive elements [begin, begin + num_elements) of one tensor.
struct Slice {
  int32_t index = 0;   // position in manifest order, over the whole job
  int32_t tensor = 0;  // index in the manifest
  int64_t begin = 0;   // first element within the tensor
  int64_t num_elements = 0;
  int32_t shard = 0;
};

// Bounds of slices depend on the manifest alone; placement is greedy by size
// (largest first, to the least loaded shard), so shards are balanced to within
// one slice. A shard may have no slice.
struct ShardPlan {
  int num_shards = 1;
  std::vector<Slice> slices;  // manifest order
  std::vector<std::vector<int32_t>>
      slices_of_shard;  // slice indices, ascending
  std::vector<std::vector<int32_t>> slices_of_tensor;
};

// INVALID_ARGUMENT for a bad manifest, or num_shards outside 1..1024.
absl::StatusOr<ShardPlan> MakeShardPlan(const Manifest& manifest,
                                        int num_shards);

}  // namespace agg

#endif  // AGG_PROTO_SHARD_PLAN_H_
