// Which bytes of which tensor go to which shard in which frame: pure, from
// the manifest and the number of shards.
#ifndef AGG_WORKER_CLIENT_SHARD_ROUTER_H_
#define AGG_WORKER_CLIENT_SHARD_ROUTER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "worker_client/tensor_view.h"

namespace agg {

// One message to one shard.
struct FramePlan {
  std::vector<int32_t> slices;         // ascending; payloads in this order
  std::vector<int32_t> absent_slices;  // of tensors left out of the push
  int64_t payload_bytes = 0;           // of the slices
};

// Immutable after Create, hence thread-safe.
class ShardRouter {
 public:
  // Most slices in a frame: keeps its meta well under the limit for metas.
  static constexpr int kMaxSlicesPerFrame = 1 << 14;

  // Makes a router with its plan. INVALID_ARGUMENT as MakeShardPlan.
  static absl::StatusOr<ShardRouter> Create(Manifest manifest, int num_shards);

  const Manifest& manifest() const { return manifest_; }
  const ShardPlan& plan() const { return plan_; }
  int num_shards() const { return plan_.num_shards; }

  // Returns the views in manifest order, absent tensors with null data.
  // INVALID_ARGUMENT with the name of a tensor that the manifest lacks, is
  // given twice, is missing (unless optional), has another number of elements,
  // pieces that do not fit it, or a dtype that is neither F32 nor `push_dtype`
  // (int8: F32 alone).
  absl::StatusOr<std::vector<TensorView>> Bind(
      absl::Span<const TensorView> views, DType push_dtype) const;
  // Returns some tensors of a row, each with its index in the manifest; a view
  // without data is left out. Errors as above, but none for a tensor that is
  // missing.
  absl::StatusOr<std::vector<std::pair<int, TensorView>>> BindSome(
      absl::Span<const TensorView> views, DType push_dtype) const;
  // Finds a tensor's index by its name; nothing: the manifest has no such
  // tensor.
  absl::optional<int> FindTensor(absl::string_view name) const;
  // Returns OK if a row may be without the tensor, else INVALID_ARGUMENT with
  // its name.
  absl::Status CheckMayLack(int tensor) const;
  // Returns the views of a pull, which needs every tensor, as the first Bind
  // does.
  absl::StatusOr<std::vector<MutableTensorView>> Bind(
      absl::Span<const MutableTensorView> views) const;

  // Plans the frames that carry a push to `shard`, filled greedily in slice
  // order up to kMaxFramePayloadBytes. `bound` is from Bind. Empty for a shard
  // that holds no slice.
  std::vector<FramePlan> PlanFrames(int shard, DType dtype,
                                    absl::Span<const TensorView> bound) const {
    return PlanFrames(plan_.slices_of_shard[shard], dtype, bound);
  }
  // Plans the frames of some slices of one shard, ascending; a frame of more
  // than one slice has up to `max_bytes`.
  std::vector<FramePlan> PlanFrames(
      absl::Span<const int32_t> slices, DType dtype,
      absl::Span<const TensorView> bound,
      int64_t max_bytes = kMaxFramePayloadBytes) const;

 private:
  ShardRouter(Manifest manifest, ShardPlan plan);

  // Finds the views' tensors, by index, and in the order of the views. The
  // views are not yet checked against the manifest.
  template <typename View>
  absl::StatusOr<std::vector<std::pair<int, View>>> FindViews(
      absl::Span<const View> views) const;
  template <typename View>
  absl::StatusOr<std::vector<View>> BindViews(
      absl::Span<const View> views) const;

  absl::Status CheckTensor(int tensor, const TensorView& view,
                           DType push_dtype) const;

  Manifest manifest_;
  ShardPlan plan_;
  absl::flat_hash_map<std::string, int> index_of_;  // of tensors, by name
};

// Where whole tensors lie in memory that holds slices. Returns the first
// element of each tensor of float32, in manifest order; null for one without
// elements. `slices`: the address of each of the job's slices.
// FAILED_PRECONDITION naming a tensor whose slices do not lie one behind the
// other, as those of a large one on several shards.
absl::StatusOr<std::vector<const float*>> TensorPlaces(
    const ShardRouter& router, absl::Span<const char* const> slices);

// The row's tensors in manifest order, whatever their pieces. REQUIRES: dtype
// is not kI8.
std::vector<RowView> RowViewsOf(const ShardRouter& router, DType dtype,
                                absl::Span<const char* const> slices);

// Which slices of a row may go to which shard, while its tensors come one by
// one. Pure: no bytes, no calls, no locks, so that a test can play every order.
//
// A slice is ready as soon as its tensor was given: slices never span tensors.
// Slices that are ready and not yet taken gather, so that a stream that was
// busy meanwhile sends them together. Thread-compatible.
class RowSchedule {
 public:
  // REQUIRES: router outlives this.
  explicit RowSchedule(const ShardRouter* router);

  // The tensors' views are final, or they are absent. REQUIRES: none was given
  // before.
  void Give(absl::Span<const int> tensors);

  // The slices of `shard` that are ready and were not taken before, ascending.
  std::vector<int32_t> Take(int shard);

 private:
  const ShardRouter* const router_;
  std::vector<std::vector<int32_t>> ready_;  // by shard
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_SHARD_ROUTER_H_
