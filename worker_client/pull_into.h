// Where a pulled version goes, and how.
#ifndef AGG_WORKER_CLIENT_PULL_INTO_H_
#define AGG_WORKER_CLIENT_PULL_INTO_H_

#include <vector>

#include "worker_client/client_types.h"
#include "worker_client/pull_arrivals.h"
#include "worker_client/retry.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"

namespace agg {

// REQUIRES: what is pointed to outlives the pull.
struct PullInto {
  BoundTargets targets() const { return {bound, device_of, devices}; }

  std::vector<MutableTensorView> bound;  // ShardRouter::Bind's
  std::vector<int> device_of;            // of each: its device, or kHost
  TensorDevices* devices = nullptr;      // null: all are on the host
  // Nothing is written before these are reached.
  std::vector<SharedMark> marks;
  PullArrivals* arrivals = nullptr;  // never null
  Precision precision = Precision::kJob;
  std::vector<int> first;          // tensors that are wanted first, by index
  CancelSource* cancel = nullptr;  // ends it with its reason; may be null
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_PULL_INTO_H_
