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
        "\" does not lie in one piece in the shards' memory; use memory of "
        "your own, fewer shards or smaller tensors"));
  }
  return places;
}

}  // namespace agg
