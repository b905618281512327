// A tensor in the caller's memory. Apart from the client so that models can
// offer views of themselves without it.
#ifndef AGG_WORKER_CLIENT_TENSOR_VIEW_H_
#define AGG_WORKER_CLIENT_TENSOR_VIEW_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"

namespace agg {

// A tensor's elements in the caller's memory, row-major; owns nothing. A list
// of views is either in manifest order with all names empty, or in any order
// with all names given. A non-empty tensor with null data, or one that the list
// lacks, is not in this push: allowed if the manifest marks it optional.
struct TensorView {
  TensorView() = default;
  TensorView(absl::Span<const float> values)  // NOLINT: a view of the span
      : data(values.data()), num_elements(values.size()) {}
  TensorView(absl::string_view name, absl::Span<const float> values)
      : name(name), data(values.data()), num_elements(values.size()) {}

  absl::string_view name;
  const void* data = nullptr;
  int64_t num_elements = 0;
  DType dtype = DType::kF32;  // F32, or the job's push dtype if not int8
};

// A tensor that a pull writes into. Lists as for TensorView, and complete.
struct MutableTensorView {
  MutableTensorView() = default;
  MutableTensorView(absl::Span<float> values)  // NOLINT: a view of the span
      : data(values.data()), num_elements(values.size()) {}
  MutableTensorView(absl::string_view name, absl::Span<float> values)
      : name(name), data(values.data()), num_elements(values.size()) {}

  absl::string_view name;
  float* data = nullptr;
  int64_t num_elements = 0;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TENSOR_VIEW_H_
