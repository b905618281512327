// Finds the caller's tensors by name, checks their sizes, and packs slices
// of one shard into frames.
#include "worker_client/shard_router.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/row_format.h"
#include "server/base/dcheck.h"
#include "server/base/status_macros.h"

namespace agg {

RowSchedule::RowSchedule(const ShardRouter* router)
    : router_(router), ready_(static_cast<size_t>(router->num_shards())) {}

void RowSchedule::Give(absl::Span<const int> tensors) {
  const ShardPlan& plan = router_->plan();
  for (const int tensor : tensors) {
    for (const int32_t index : plan.slices_of_tensor[tensor]) {
      ready_[plan.slices[index].shard].push_back(index);
    }
  }
}

std::vector<int32_t> RowSchedule::Take(int shard) {
  std::vector<int32_t> slices = std::move(ready_[shard]);
  ready_[shard].clear();
  std::sort(slices.begin(), slices.end());
  return slices;
}

namespace {

absl::Status CheckCount(const TensorSpec& tensor, int64_t num_elements) {
  if (num_elements == NumElements(tensor)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor \"", tensor.name, "\" has ", num_elements, " elements here, but ",
      NumElements(tensor), " in the job's manifest"));
}

bool IsAbsent(const MutableTensorView& view) { return view.data == nullptr; }

absl::Status CheckPieces(const TensorSpec& tensor, const TensorView& view) {
  int64_t next = 0;
  for (const TensorPiece& piece : view.pieces) {
    if (piece.begin != next || piece.num_elements < 1 ||
        piece.begin % kMaxSliceElements != 0 || piece.data == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", tensor.name, "\" has a piece of ", piece.num_elements,
          " elements at ", piece.begin, piece.data == nullptr ? ", null" : "",
          "; allowed: one behind the other from 0, cut at multiples of ",
          kMaxSliceElements));
    }
    next += piece.num_elements;
  }
  if (view.pieces.empty() || next == view.num_elements) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tensor \"", tensor.name, "\" has ", next,
                   " elements in its pieces; allowed: ", view.num_elements));
}

template <typename View>
bool AllUnnamed(absl::Span<const View> views) {
  return std::all_of(views.begin(), views.end(),
                     [](const View& view) { return view.name.empty(); });
}

}  // namespace

ShardRouter::ShardRouter(Manifest manifest, ShardPlan plan)
    : manifest_(std::move(manifest)), plan_(std::move(plan)) {
  index_of_.reserve(manifest_.tensors.size());
  for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
    index_of_[manifest_.tensors[i].name] = static_cast<int>(i);
  }
}

absl::StatusOr<ShardRouter> ShardRouter::Create(Manifest manifest,
                                                int num_shards) {
  AGG_ASSIGN_OR_RETURN(ShardPlan plan, MakeShardPlan(manifest, num_shards));
  return ShardRouter(std::move(manifest), std::move(plan));
}

template <typename View>
absl::StatusOr<std::vector<std::pair<int, View>>> ShardRouter::FindViews(
    absl::Span<const View> views) const {
  std::vector<std::pair<int, View>> found;
  found.reserve(views.size());
  if (AllUnnamed(views) && !views.empty()) {
    if (views.size() != manifest_.tensors.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          views.size(), " tensors were given without names, but the job's ",
          "manifest has ", manifest_.tensors.size()));
    }
    for (const View& view : views) {
      found.emplace_back(static_cast<int>(found.size()), view);
    }
    return found;
  }
  std::vector<bool> given(manifest_.tensors.size());
  for (const View& view : views) {
    const auto index = index_of_.find(view.name);
    if (index == index_of_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", view.name, "\" is not in the job's ",
                       "manifest; name all tensors or none"));
    }
    if (given[index->second]) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", view.name, "\" is given twice"));
    }
    given[index->second] = true;
    found.emplace_back(index->second, view);
  }
  return found;
}

template <typename View>
absl::StatusOr<std::vector<View>> ShardRouter::BindViews(
    absl::Span<const View> views) const {
  AGG_ASSIGN_OR_RETURN(auto found, FindViews(views));
  std::vector<View> bound(manifest_.tensors.size());
  for (const auto& [tensor, view] : found) bound[tensor] = view;
  return bound;
}

absl::Status ShardRouter::CheckTensor(int tensor, const TensorView& view,
                                      DType push_dtype) const {
  const TensorSpec& spec = manifest_.tensors[tensor];
  absl::Status counted = CheckCount(spec, view.num_elements);
  counted.Update(CheckPieces(spec, view));
  if (!counted.ok()) return counted;
  const bool int8 = push_dtype == DType::kI8;  // a view has no scales
  if (view.dtype == DType::kF32 || (view.dtype == push_dtype && !int8)) {
    return counted;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor \"", spec.name, "\" is ", DTypeName(view.dtype), "; allowed: f32",
      int8
          ? ""
          : absl::StrCat(", or the job's push dtype ", DTypeName(push_dtype))));
}

absl::optional<int> ShardRouter::FindTensor(absl::string_view name) const {
  const auto found = index_of_.find(name);
  if (found == index_of_.end()) return absl::nullopt;
  return found->second;
}

absl::Status ShardRouter::CheckMayLack(int tensor) const {
  const TensorSpec& spec = manifest_.tensors[tensor];
  if (NumElements(spec) == 0 || spec.optional) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor \"", spec.name, "\" is missing; only optional tensors may be"));
}

absl::StatusOr<std::vector<TensorView>> ShardRouter::Bind(
    absl::Span<const TensorView> views, DType push_dtype) const {
  absl::StatusOr<std::vector<TensorView>> bound = BindViews(views);
  if (!bound.ok()) return bound;
  for (size_t i = 0; i < bound->size(); ++i) {
    const TensorView& view = (*bound)[i];
    const int tensor = static_cast<int>(i);
    AGG_RETURN_IF_ERROR(IsAbsent(view) ? CheckMayLack(tensor)
                                       : CheckTensor(tensor, view, push_dtype));
  }
  return bound;
}

absl::StatusOr<std::vector<std::pair<int, TensorView>>> ShardRouter::BindSome(
    absl::Span<const TensorView> views, DType push_dtype) const {
  auto found = FindViews(views);
  if (!found.ok()) return found;
  std::vector<std::pair<int, TensorView>> bound;
  bound.reserve(found->size());
  for (const auto& [tensor, view] : *found) {
    if (IsAbsent(view)) continue;
    AGG_RETURN_IF_ERROR(CheckTensor(tensor, view, push_dtype));
    bound.emplace_back(tensor, view);
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
    AGG_RETURN_IF_ERROR(CheckCount(tensor, view.num_elements));
  }
  return bound;
}

std::vector<FramePlan> ShardRouter::PlanFrames(
    absl::Span<const int32_t> slices, DType dtype,
    absl::Span<const TensorView> bound, int64_t max_bytes) const {
  std::vector<FramePlan> frames;
  for (int32_t index : slices) {
    const Slice& slice = plan_.slices[index];
    const bool absent = IsAbsent(bound[slice.tensor]);
    const int64_t bytes = absent ? 0 : PayloadBytes(dtype, slice.num_elements);
    const bool fits =
        !frames.empty() && frames.back().payload_bytes + bytes <= max_bytes &&
        frames.back().slices.size() + frames.back().absent_slices.size() <
            kMaxSlicesPerFrame;
    if (!fits) frames.emplace_back();
    FramePlan& frame = frames.back();
    (absent ? frame.absent_slices : frame.slices).push_back(index);
    frame.payload_bytes += bytes;
  }
  return frames;
}

// A tensor's slices are numbered one behind the other.

absl::StatusOr<std::vector<const float*>> TensorPlaces(
    const ShardRouter& router, absl::Span<const char* const> slices) {
  std::vector<const float*> places(router.manifest().tensors.size(), nullptr);
  for (size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = router.plan().slices[i];
    const auto* const place = reinterpret_cast<const float*>(slices[i]);
    if (slice.begin == 0) places[slice.tensor] = place;
    if (places[slice.tensor] + slice.begin == place) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "tensor \"", router.manifest().tensors[slice.tensor].name,
        "\" does not lie in one piece in the shards' memory; use RowViews, "
        "memory of your own, fewer shards or smaller tensors"));
  }
  return places;
}

std::vector<RowView> RowViewsOf(const ShardRouter& router, DType dtype,
                                absl::Span<const char* const> slices) {
  AGG_DCHECK(dtype != DType::kI8);
  std::vector<RowView> views(router.manifest().tensors.size());
  for (size_t t = 0; t < views.size(); ++t) {
    views[t].dtype = dtype;
    views[t].num_elements = NumElements(router.manifest().tensors[t]);
  }
  for (size_t i = 0; i < slices.size(); ++i) {
    const Slice& slice = router.plan().slices[i];
    if (slice.num_elements == 0) continue;
    RowView& view = views[slice.tensor];
    if (!view.pieces.empty() &&
        ElementsFrom(view.view(), slice.begin) == slices[i]) {
      view.pieces.back().num_elements += slice.num_elements;
    } else {
      // The worker's own row: only its versions are read-only.
      view.pieces.push_back(
          {slice.begin, slice.num_elements, const_cast<char*>(slices[i])});
    }
  }
  return views;
}

}  // namespace agg
