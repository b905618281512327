// agg_server on the emulated device, with the driver that AGG_CUDA_DRIVER
// names: without that variable it shares no device memory, since a real driver
// has none that these kernels can read. Streams work as late as they may;
// AGG_EAGER_STREAMS in the environment: at once.
#include <cstdlib>
#include <memory>

#include "absl/status/status.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "server/server_main.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

absl::StatusOr<std::unique_ptr<Backend>> MakeEmulated(
    absl::string_view name, const BackendOptions& options) {
  if (name == "cpu") return std::make_unique<CpuBackend>(options.num_threads);
  if (name != "cuda") return absl::InvalidArgumentError(name);
  emulator::SetLazy(std::getenv("AGG_EAGER_STREAMS") == nullptr);
  CudaOptions cuda;
  cuda.gram = options.cuda_gram;
  cuda.device = options.cuda_device;
  cuda.use_cublas = false;
  cuda.share_device =
      options.share_device && std::getenv("AGG_CUDA_DRIVER") != nullptr;
  return CudaBackend::Make(cuda);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  return agg::ServerMain(argc, argv, &agg::MakeEmulated);
}
