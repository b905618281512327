// How a compute backend is asked for, apart from which ones there are: who
// takes a maker need not link any backend.
#ifndef AGG_KERNELS_BACKEND_MAKER_H_
#define AGG_KERNELS_BACKEND_MAKER_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"

namespace agg {

struct BackendOptions {
  // Compute threads of the CPU backend; 0 takes one per available CPU.
  int num_threads = 0;
};

// A backend by its name ("cpu", "cuda"). INVALID_ARGUMENT for a name that it
// does not know; UNAVAILABLE when the device is missing.
using BackendMaker = std::function<absl::StatusOr<std::unique_ptr<Backend>>(
    absl::string_view name, const BackendOptions& options)>;

}  // namespace agg

#endif  // AGG_KERNELS_BACKEND_MAKER_H_
