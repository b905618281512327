// Chooses the compute backend by name: the only place that knows which exist.
#ifndef AGG_KERNELS_BACKEND_FACTORY_H_
#define AGG_KERNELS_BACKEND_FACTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/backend_maker.h"

namespace agg {

// Backends that this binary was built with: {"cpu"} or {"cpu", "cuda"}.
std::vector<std::string> AvailableBackends();

// INVALID_ARGUMENT naming the available ones for an unknown name, and else as
// BackendMaker, of which it is one.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(
    absl::string_view name, const BackendOptions& options);

}  // namespace agg

#endif  // AGG_KERNELS_BACKEND_FACTORY_H_
