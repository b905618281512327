// Tensors that were bound to the job's, with the devices that have them. Apart
// from tensor_devices.h, which knows of no manifest.
#ifndef AGG_WORKER_CLIENT_BOUND_VIEWS_H_
#define AGG_WORKER_CLIENT_BOUND_VIEWS_H_

#include <cstddef>
#include <memory>

#include "absl/types/span.h"
#include "kernels/device_memory/device_stream.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Behind what its device's legacy default stream had been given when a tensor
// was given; null: of the host.
using DeviceMark = std::shared_ptr<const DeviceEvent>;

// Tensors in the manifest's order, and which device has each.
template <typename View>
struct BoundViews {
  BoundViews(absl::Span<const View> bound)  // NOLINT: all are on the host
      : views(bound) {}
  BoundViews(absl::Span<const View> bound, absl::Span<const int> of_each,
             TensorDevices* known, absl::Span<const DeviceMark> marks_of = {})
      : views(bound), device_of(of_each), marks(marks_of), devices(known) {}

  int device(int tensor) const {
    return devices == nullptr ? TensorDevices::kHost
                              : device_of[static_cast<size_t>(tensor)];
  }

  // What the tensor's copies wait for; null: nothing, or it is not known.
  const DeviceEvent* mark(int tensor) const {
    return marks.empty() ? nullptr : marks[static_cast<size_t>(tensor)].get();
  }

  absl::Span<const View> views;
  absl::Span<const int> device_of;
  absl::Span<const DeviceMark> marks;
  TensorDevices* devices = nullptr;  // null: all are on the host
};

using BoundRow = BoundViews<TensorView>;             // that is pushed
using BoundTargets = BoundViews<MutableTensorView>;  // that a pull writes into

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_BOUND_VIEWS_H_
