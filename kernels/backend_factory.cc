// The table of backends. A backend that was not built in is not in the
// table, so an unknown name and a missing one get the same error.
#include "kernels/backend_factory.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/cpu_backend.h"
#ifdef AGG_HAVE_CUDA
#include "kernels/cuda/cuda_backend.h"
#endif

namespace agg {
namespace {

using Maker =
    absl::StatusOr<std::unique_ptr<Backend>> (*)(const BackendOptions&);

absl::StatusOr<std::unique_ptr<Backend>> MakeCpu(
    const BackendOptions& options) {
  return std::make_unique<CpuBackend>(options.num_threads);
}

#ifdef AGG_HAVE_CUDA
absl::StatusOr<std::unique_ptr<Backend>> MakeCuda(
    const BackendOptions& options) {
  CudaOptions cuda;
  cuda.gram = options.cuda_gram;
  cuda.device = options.cuda_device;
  return CudaBackend::Make(cuda);
}
#endif

// The table of backends. What is not always there is inside the #ifdefs of
// this file, the only ones of the project.
std::vector<std::pair<std::string, Maker>> Makers() {
  return {
      {"cpu", &MakeCpu},
#ifdef AGG_HAVE_CUDA
      {"cuda", &MakeCuda},
#endif
  };
}

}  // namespace

std::vector<std::string> AvailableBackends() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : Makers()) names.push_back(name);
  return names;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(
    absl::string_view name, const BackendOptions& options) {
  for (const auto& [known, maker] : Makers()) {
    if (known == name) return maker(options);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not in this binary; allowed: ",
                   absl::StrJoin(AvailableBackends(), ", ")));
}

}  // namespace agg
