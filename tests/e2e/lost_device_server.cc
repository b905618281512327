// agg_server on the emulated device, which breaks at the Gram or Update that
// the environment names: AGG_BREAK_AT_GRAM=3, AGG_BREAK_AT_UPDATE=2.
#include <cstdlib>
#include <memory>
#include <utility>

#include "kernels/cuda/cuda_backend.h"
#include "server/server_main.h"
#include "tests/e2e/hooked_backend.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

std::function<void()> BreakAt(const char* variable) {
  const char* const text = std::getenv(variable);
  const int last = text == nullptr ? 0 : std::atoi(text);
  return [last, call = 0]() mutable {
    if (++call == last) emulator::BreakDevice(cudaErrorIllegalAddress);
  };
}

absl::StatusOr<std::unique_ptr<Backend>> MakeEmulated(
    absl::string_view /*name*/, const BackendOptions& /*options*/) {
  emulator::SetLazy(false);
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CudaBackend::Make(CudaOptions());
  if (!backend.ok()) return backend;
  BackendHooks hooks;
  hooks.before_gram = BreakAt("AGG_BREAK_AT_GRAM");
  hooks.before_update = BreakAt("AGG_BREAK_AT_UPDATE");
  return std::make_unique<HookedBackend>(*std::move(backend), hooks);
}

}  // namespace
}  // namespace agg

int main(int argc, char** argv) {
  return agg::ServerMain(argc, argv, &agg::MakeEmulated);
}
