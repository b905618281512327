// The receiver knows which slice comes next, so that one that is lost or sent
// twice is noticed at once.
#include "server/shard/copy_transfer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/try_resize.h"

namespace agg {
namespace {

CopyArray ArrayOf(int array) {
  if (array == 0) return CopyArray::kParameters;
  return array == 1 ? CopyArray::kState0 : CopyArray::kState1;
}

}  // namespace

absl::Status SendArrays(
    const ShardLayout& layout, int num_arrays,
    const std::function<absl::Status(int array, absl::Span<float> to)>& read,
    const std::function<absl::Status(const CopySlice&)>& sink) {
  std::vector<float> values;
  absl::Status status = TryResize(layout.num_elements, &values);
  for (int array = 0; array < num_arrays && status.ok(); ++array) {
    status = read(array, absl::MakeSpan(values));
    for (size_t i = 0; i < layout.slices.size() && status.ok(); ++i) {
      const ElementRange& range = layout.ranges[i];
      status = sink({ArrayOf(array), layout.slices[i],
                     absl::MakeConstSpan(values).subspan(
                         static_cast<size_t>(range.begin),
                         static_cast<size_t>(range.num_elements))});
    }
  }
  return status;
}

absl::Status ArrayReceiver::Take(const CopySlice& slice) {
  if (array_ == num_arrays_ || layout_->slices.empty() ||
      slice.array != ArrayOf(array_) ||
      slice.slice != layout_->slices[position_]) {
    return absl::InternalError(absl::StrCat("slice ", slice.slice, " of array ",
                                            static_cast<int>(slice.array),
                                            " was not expected"));
  }
  const ElementRange& range = layout_->ranges[position_];
  if (static_cast<int64_t>(slice.values.size()) != range.num_elements) {
    return absl::InternalError(
        absl::StrCat("slice ", slice.slice, " has ", slice.values.size(),
                     " elements; allowed: ", range.num_elements));
  }
  const absl::StatusOr<absl::Span<float>> to = target_->Destination(array_);
  if (!to.ok()) return to.status();
  std::copy(slice.values.begin(), slice.values.end(),
            to->begin() + range.begin);
  if (++position_ < layout_->slices.size()) return absl::OkStatus();
  position_ = 0;
  return target_->Finish(array_++);
}

absl::Status ArrayReceiver::Finish() const {
  if (array_ == num_arrays_ || layout_->slices.empty()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("the copy ends before slice ",
                                          layout_->slices[position_],
                                          " of array ", array_));
}

}  // namespace agg
