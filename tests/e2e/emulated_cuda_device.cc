#include <memory>

#include "absl/status/status.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/e2e/cuda_device.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

absl::StatusOr<std::unique_ptr<Backend>> Make(absl::string_view name,
                                              const BackendOptions& options) {
  if (name == "cpu") return std::make_unique<CpuBackend>(options.num_threads);
  if (name != "cuda") return absl::InvalidArgumentError(name);
  CudaOptions cuda;
  cuda.device = options.cuda_device;
  cuda.use_cublas = false;
  return CudaBackend::Make(cuda);
}

}  // namespace

const CudaDevice& TheCudaDevice() {
  static const auto* const device =
      new CudaDevice{&Make, /*why_not=*/"", /*columns=*/360000};
  return *device;
}

void BeginRun(int run) { emulator::SetLazy(run % 2 == 0); }

}  // namespace agg
