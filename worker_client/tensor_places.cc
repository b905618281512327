// A tensor's slices are numbered one behind the other.
#include "worker_client/tensor_places.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace agg {

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
