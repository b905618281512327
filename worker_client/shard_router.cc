// Finds the caller's tensors by name, checks their sizes, and packs slices
// of one shard into frames.
#include "worker_client/shard_router.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

absl::Status CheckCount(const TensorSpec& tensor, int64_t num_elements) {
  if (num_elements == NumElements(tensor)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor \"", tensor.name, "\" has ", num_elements, " elements here, but ",
      NumElements(tensor), " in the job's manifest"));
}

template <typename View>
bool IsAbsent(const View& view) {
  return view.data == nullptr;
}

template <typename View>
bool AllUnnamed(absl::Span<const View> views) {
  return std::all_of(views.begin(), views.end(),
                     [](const View& view) { return view.name.empty(); });
}

}  // namespace

ShardRouter::ShardRouter(Manifest manifest, ShardPlan plan)
    : manifest_(std::move(manifest)), plan_(std::move(plan)) {}

absl::StatusOr<ShardRouter> ShardRouter::Create(Manifest manifest,
                                                int num_shards) {
  absl::StatusOr<ShardPlan> plan = MakeShardPlan(manifest, num_shards);
  if (!plan.ok()) return plan.status();
  return ShardRouter(std::move(manifest), *std::move(plan));
}

template <typename View>
absl::StatusOr<std::vector<View>> ShardRouter::BindViews(
    absl::Span<const View> views) const {
  const std::vector<TensorSpec>& tensors = manifest_.tensors;
  if (AllUnnamed(views)) {
    if (views.size() != tensors.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          views.size(), " tensors were given without names, but the job's ",
          "manifest has ", tensors.size()));
    }
    return std::vector<View>(views.begin(), views.end());
  }
  absl::flat_hash_map<absl::string_view, size_t> index_of;
  index_of.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) index_of[tensors[i].name] = i;
  std::vector<View> bound(tensors.size());
  std::vector<bool> given(tensors.size());
  for (const View& view : views) {
    const auto found = index_of.find(view.name);
    if (found == index_of.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", view.name, "\" is not in the job's ",
                       "manifest; name all tensors or none"));
    }
    if (given[found->second]) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", view.name, "\" is given twice"));
    }
    given[found->second] = true;
    bound[found->second] = view;
  }
  return bound;
}

absl::StatusOr<std::vector<TensorView>> ShardRouter::Bind(
    absl::Span<const TensorView> views, DType push_dtype) const {
  absl::StatusOr<std::vector<TensorView>> bound = BindViews(views);
  if (!bound.ok()) return bound;
  for (size_t i = 0; i < bound->size(); ++i) {
    const TensorView& view = (*bound)[i];
    const TensorSpec& tensor = manifest_.tensors[i];
    if (IsAbsent(view)) {
      if (NumElements(tensor) == 0 || tensor.optional) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", tensor.name,
                       "\" is missing; only optional tensors may be"));
    }
    absl::Status counted = CheckCount(tensor, view.num_elements);
    if (!counted.ok()) return counted;
    if (view.dtype != DType::kF32 && view.dtype != push_dtype) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", tensor.name, "\" is ", DTypeName(view.dtype),
          "; allowed: f32, or the job's push dtype ", DTypeName(push_dtype)));
    }
  }
  return bound;
}

absl::StatusOr<std::vector<MutableTensorView>> ShardRouter::Bind(
    absl::Span<const MutableTensorView> views) const {
  absl::StatusOr<std::vector<MutableTensorView>> bound = BindViews(views);
  if (!bound.ok()) return bound;
  for (size_t i = 0; i < bound->size(); ++i) {
    const MutableTensorView& view = (*bound)[i];
    const TensorSpec& tensor = manifest_.tensors[i];
    if (IsAbsent(view) && NumElements(tensor) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", tensor.name, "\" is missing; a pull needs all tensors"));
    }
    absl::Status counted = CheckCount(tensor, view.num_elements);
    if (!counted.ok()) return counted;
  }
  return bound;
}

std::vector<FramePlan> ShardRouter::PlanFrames(
    int shard, DType dtype, absl::Span<const TensorView> bound) const {
  std::vector<FramePlan> frames;
  for (int32_t index : plan_.slices_of_shard[shard]) {
    const Slice& slice = plan_.slices[index];
    const bool absent = IsAbsent(bound[slice.tensor]);
    const int64_t bytes = absent ? 0 : slice.num_elements * DTypeBytes(dtype);
    const bool fits =
        !frames.empty() &&
        frames.back().payload_bytes + bytes <= kMaxFramePayloadBytes &&
        frames.back().slices.size() + frames.back().absent_slices.size() <
            kMaxSlicesPerFrame;
    if (!fits) frames.emplace_back();
    FramePlan& frame = frames.back();
    (absent ? frame.absent_slices : frame.slices).push_back(index);
    frame.payload_bytes += bytes;
  }
  return frames;
}

}  // namespace agg
