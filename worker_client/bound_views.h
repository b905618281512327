// Tensors that were bound to the job's, with the devices that have them. Apart
// from tensor_devices.h, which knows of no manifest.
#ifndef AGG_WORKER_CLIENT_BOUND_VIEWS_H_
#define AGG_WORKER_CLIENT_BOUND_VIEWS_H_

#include <cstddef>

#include "absl/types/span.h"
#include "worker_client/encoding_tally.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Tensors in the manifest's order, and which device has each.
template <typename View>
struct BoundViews {
  BoundViews(absl::Span<const View> bound)  // NOLINT: all are on the host
      : views(bound) {}
  BoundViews(absl::Span<const View> bound, absl::Span<const int> of_each,
             TensorDevices* known)
      : views(bound), device_of(of_each), devices(known) {}

  int device(int tensor) const {
    return devices == nullptr ? TensorDevices::kHost
                              : device_of[static_cast<size_t>(tensor)];
  }

  absl::Span<const View> views;
  absl::Span<const int> device_of;
  TensorDevices* devices = nullptr;  // null: all are on the host
  EncodingTally* tally = nullptr;    // of what is rounded; null: nobody counts
};

using BoundRow = BoundViews<TensorView>;             // that is pushed
using BoundTargets = BoundViews<MutableTensorView>;  // that a pull writes into

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_BOUND_VIEWS_H_
