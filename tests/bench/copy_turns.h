// Times kernels in turns with a device-to-device copy, the yardstick of all
// that memory bounds: clocks and temperature drift, and both drift alike.
#ifndef AGG_TESTS_BENCH_COPY_TURNS_H_
#define AGG_TESTS_BENCH_COPY_TURNS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_memory.h"
#include "server/base/json.h"
#include "tests/bench/bench_file.h"

namespace agg {

// Says at which clock a device's multiprocessors run right now. It asks the
// library that nvidia-smi asks (NVML), which a host may lack: CUDA's runtime
// knows the highest clock alone. A question takes well below a millisecond, and
// does not disturb the device. Thread-compatible.
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

// Ends the process with a message if a call fails. Thread-compatible.
class CopyTurns {
 public:
  // Each copy reads `num_bytes` of one allocation and writes them to another;
  // both are made here. `warm_seconds`: what Measure runs untimed, on the
  // device. REQUIRES: `stream` outlives it.
  CopyTurns(cudaStream_t stream, int64_t num_bytes, double warm_seconds);
  ~CopyTurns();
  CopyTurns(const CopyTurns&) = delete;
  CopyTurns& operator=(const CopyTurns&) = delete;

  cudaStream_t stream() const { return stream_; }
  int64_t num_bytes() const { return num_bytes_; }
  char* from() const { return from_.get(); }
  char* to() const { return to_.get(); }
  // What a copy reads and writes, together.
  double copied_bytes() const { return 2.0 * static_cast<double>(num_bytes_); }

  using Launch = std::function<void()>;

  // Turns of a copy and of what `launch` gives the stream, and then, if there
  // is one, of a copy and of what `yardstick` gives it: 15, or fewer (3 at
  // least) where they would take longer than half a second. Before them the
  // same goes on for `warm_seconds` of the device's time, until clocks have
  // risen and the caches are as they are in the middle of a round. The stream
  // has the next turn before it is done with the last one, so that launching is
  // not timed. What a copy has left to be written in the L2 cache is written in
  // the time of what comes after it: some 2% of it, of kernel and yardstick
  // alike.
  std::vector<Turn> Measure(const Launch& launch,
                            const Launch& yardstick = nullptr);

  // {"before", "after"} the timed turns of the last Measure: MHz of the
  // multiprocessors, or null where nobody says them.
  const Json& sm_mhz() const { return *sm_mhz_; }

 private:
  // Gives the stream all of a turn; `events`, if any, are recorded behind each
  // part.
  void Enqueue(const Launch& launch, const Launch& yardstick,
               cudaEvent_t* events);
  // Runs turns after a copy that is not timed, which keeps the device busy
  // meanwhile.
  std::vector<Turn> Run(int num_turns, const Launch& launch,
                        const Launch& yardstick);
  void Copy();

  const cudaStream_t stream_;
  const int64_t num_bytes_;
  const double warm_seconds_;
  const cuda::DeviceMemory from_, to_;
  const SmClock clock_;
  const std::unique_ptr<Json> sm_mhz_;
  std::vector<cudaEvent_t> events_;  // before the first turn, and in each
};

}  // namespace agg

#endif  // AGG_TESTS_BENCH_COPY_TURNS_H_
