// Four functions of NVML, declared by hand: not every toolkit has its header.
#include "tests/bench/sm_clock.h"

#include <dlfcn.h>

#include <memory>
#include <string>
#include <utility>

#include "nlohmann/json.hpp"

namespace agg {
namespace {

constexpr int kClockOfSms = 1;  // NVML_CLOCK_SM

template <class Function>
bool Find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

}  // namespace

struct SmClock::Nvml {
  ~Nvml() {
    if (started) shutdown();
    if (library != nullptr) dlclose(library);
  }

  // Whether it knows the device.
  bool Open(const std::string& pci_bus_id) {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    int (*start)() = nullptr;
    int (*find)(const char*, void**) = nullptr;
    if (!Find(library, "nvmlInit_v2", &start) ||
        !Find(library, "nvmlShutdown", &shutdown) ||
        !Find(library, "nvmlDeviceGetHandleByPciBusId_v2", &find) ||
        !Find(library, "nvmlDeviceGetClockInfo", &clock_info)) {
      return false;
    }
    started = start() == 0;
    return started && find(pci_bus_id.c_str(), &device) == 0;
  }

  void* library = nullptr;
  int (*shutdown)() = nullptr;
  int (*clock_info)(void* device, int type, unsigned* mhz) = nullptr;
  bool started = false;
  void* device = nullptr;
};

SmClock::SmClock(const std::string& pci_bus_id) {
  auto nvml = std::make_unique<Nvml>();
  if (nvml->Open(pci_bus_id)) nvml_ = std::move(nvml);
}

SmClock::~SmClock() = default;

Json SmClock::Mhz() const {
  unsigned mhz = 0;
  if (nvml_ == nullptr ||
      nvml_->clock_info(nvml_->device, kClockOfSms, &mhz) != 0) {
    return nullptr;
  }
  return mhz;
}

}  // namespace agg
