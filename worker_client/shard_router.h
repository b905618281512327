// Which bytes of which tensor go to which shard in which frame: pure, from
// the manifest and the number of shards.
#ifndef AGG_WORKER_CLIENT_SHARD_ROUTER_H_
#define AGG_WORKER_CLIENT_SHARD_ROUTER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "worker_client/tensor_view.h"

namespace agg {

// One message to one shard.
struct FramePlan {
  std::vector<int32_t> slices;         // ascending; payloads in this order
  std::vector<int32_t> absent_slices;  // of tensors left out of the push
  int64_t payload_bytes = 0;           // <= kMaxFramePayloadBytes
};

// Immutable after Create, hence thread-safe.
class ShardRouter {
 public:
  // Most slices in a frame: keeps its meta well under the limit for metas.
  static constexpr int kMaxSlicesPerFrame = 1 << 14;

  // INVALID_ARGUMENT as MakeShardPlan.
  static absl::StatusOr<ShardRouter> Create(Manifest manifest, int num_shards);

  const Manifest& manifest() const { return manifest_; }
  const ShardPlan& plan() const { return plan_; }
  int num_shards() const { return plan_.num_shards; }

  // The views in manifest order, absent tensors with null data.
  // INVALID_ARGUMENT with the name of a tensor that the manifest lacks, is
  // given twice, is missing (unless optional), has another number of elements,
  // or a dtype that is neither F32 nor `push_dtype`.
  absl::StatusOr<std::vector<TensorView>> Bind(
      absl::Span<const TensorView> views, DType push_dtype) const;
  // As above for a pull, which needs every tensor.
  absl::StatusOr<std::vector<MutableTensorView>> Bind(
      absl::Span<const MutableTensorView> views) const;

  // The frames that carry a push to `shard`, filled greedily in slice order.
  // `bound` is from Bind. Empty for a shard that holds no slice.
  std::vector<FramePlan> PlanFrames(int shard, DType dtype,
                                    absl::Span<const TensorView> bound) const;

 private:
  ShardRouter(Manifest manifest, ShardPlan plan);

  // In manifest order, not yet checked against it.
  template <typename View>
  absl::StatusOr<std::vector<View>> BindViews(
      absl::Span<const View> views) const;

  Manifest manifest_;
  ShardPlan plan_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_SHARD_ROUTER_H_
