// A tensor in the caller's memory. Apart from the client so that models can
// offer views of themselves without it.
//
// The memory may be a CUDA device's, of any allocation of this process; the
// client asks the driver that the process has loaded whose it is. It waits for
// the device's legacy default stream: work that makes what is read, and work
// that uses what is written, is given to that stream (or to one that it waits
// for), or complete, before the call. Cancel and transfer_timeout end that
// wait, too. When the call returns, or the operation is done, the client's
// copies are done, and the memory is the caller's.
#ifndef AGG_WORKER_CLIENT_TENSOR_VIEW_H_
#define AGG_WORKER_CLIENT_TENSOR_VIEW_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace agg {

// Elements [begin, begin + num_elements) of a tensor, row-major.
struct TensorPiece {
  int64_t begin = 0;
  int64_t num_elements = 0;
  void* data = nullptr;
};

// A tensor's elements in the caller's memory, row-major; owns nothing. A list
// of views is either in manifest order with all names empty, or in any order
// with all names given. A non-empty tensor with neither data nor pieces, or one
// that the list lacks, is not in this push: allowed if the manifest marks it
// optional.
struct TensorView {
  TensorView() = default;
  TensorView(absl::Span<const float> values)  // NOLINT: a view of the span
      : data(values.data()), num_elements(values.size()) {}
  TensorView(absl::string_view name, absl::Span<const float> values)
      : name(name), data(values.data()), num_elements(values.size()) {}

  absl::string_view name;
  const void* data = nullptr;  // of the host, or of a device
  int64_t num_elements = 0;
  DType dtype = DType::kF32;  // F32, or the job's push dtype if not int8
  // Given in place of `data`: all of the tensor, one piece behind the other,
  // cut at begins of slices alone (multiples of kMaxSliceElements,
  // shard_plan.h). All on the host, or all on one device.
  absl::Span<const TensorPiece> pieces;
};

// Whether the tensor is not in this push.
inline bool IsAbsent(const TensorView& view) {
  return view.data == nullptr && view.pieces.empty();
}

// Returns where the slice that begins with element `begin` lies. REQUIRES: the
// view is not absent and fits its tensor.
inline const char* ElementsFrom(const TensorView& view, int64_t begin) {
  const char* data = static_cast<const char*>(view.data);
  int64_t first = 0;
  if (!view.pieces.empty()) {
    const auto behind =
        std::upper_bound(view.pieces.begin(), view.pieces.end(), begin,
                         [](int64_t element, const TensorPiece& piece) {
                           return element < piece.begin;
                         });
    data = static_cast<const char*>((behind - 1)->data);
    first = (behind - 1)->begin;
  }
  return data + (begin - first) * DTypeBytes(view.dtype);
}

// A tensor of a worker's row where it lies in the shards' memory, to compute
// the gradient into.
struct RowView {
  DType dtype = DType::kF32;  // of the elements: the job's push dtype
  int64_t num_elements = 0;
  // Pieces of all of the tensor, ascending; none of an empty tensor.
  std::vector<TensorPiece> pieces;

  // Returns a view for Push; good as long as this is.
  TensorView view() const {
    TensorView result;
    result.num_elements = num_elements;
    result.dtype = dtype;
    result.pieces = pieces;
    return result;
  }
};

// A tensor that a pull writes into. Lists as for TensorView, and complete.
struct MutableTensorView {
  MutableTensorView() = default;
  MutableTensorView(absl::Span<float> values)  // NOLINT: a view of the span
      : data(values.data()), num_elements(values.size()) {}
  MutableTensorView(absl::string_view name, absl::Span<float> values)
      : name(name), data(values.data()), num_elements(values.size()) {}

  absl::string_view name;
  float* data = nullptr;  // of the host, or of a device
  int64_t num_elements = 0;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TENSOR_VIEW_H_
