// The clock that a device's multiprocessors run at right now.
#ifndef AGG_TESTS_BENCH_SM_CLOCK_H_
#define AGG_TESTS_BENCH_SM_CLOCK_H_

#include <memory>
#include <string>

#include "server/base/json.h"

namespace agg {

// By the library that nvidia-smi asks (NVML), which a host may lack: CUDA's
// runtime knows the highest clock alone. A question takes well below a
// millisecond, and does not disturb the device. Thread-compatible.
class SmClock {
 public:
  // `pci_bus_id`: of the device, as cudaDeviceGetPCIBusId has it.
  explicit SmClock(const std::string& pci_bus_id);
  ~SmClock();
  SmClock(const SmClock&) = delete;
  SmClock& operator=(const SmClock&) = delete;

  // MHz; null if nobody says it.
  Json Mhz() const;

 private:
  struct Nvml;

  std::unique_ptr<Nvml> nvml_;  // null: there is none, or not this device
};

}  // namespace agg

#endif  // AGG_TESTS_BENCH_SM_CLOCK_H_
