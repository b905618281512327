// A published version where it lies, in the memory of shards of this host.
#ifndef AGG_WORKER_CLIENT_VERSION_VIEW_H_
#define AGG_WORKER_CLIENT_VERSION_VIEW_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "worker_client/tensor_view.h"

namespace agg {

// The shards hold the version for as long as this lives, unless they need the
// memory: a round that finds no other waits for readers for 2 s (P40). So it is
// good for the time in which a gradient is computed; who needs a version longer
// copies it with Pull. It may outlive its client. Thread-safe.
class VersionView {
 public:
  VersionView(uint64_t version, std::vector<TensorView> tensors,
              std::function<bool()> valid)
      : version_(version),
        tensors_(std::move(tensors)),
        valid_(std::move(valid)) {}

  uint64_t version() const { return version_; }
  // Tensors in manifest order, without names. Reading is always safe; what is
  // read is the version's only if valid() is true afterwards.
  absl::Span<const TensorView> tensors() const { return tensors_; }
  // Whether all that has been read until now was of this version. Costs
  // nothing, and no call.
  bool valid() const { return valid_(); }

 private:
  const uint64_t version_;
  const std::vector<TensorView> tensors_;
  const std::function<bool()> valid_;  // holds what it needs
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_VERSION_VIEW_H_
