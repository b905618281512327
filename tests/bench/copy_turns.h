// Times kernels in turns with a device-to-device copy, the yardstick of all
// that memory bounds: clocks and temperature drift, and both drift alike.
#ifndef AGG_TESTS_BENCH_COPY_TURNS_H_
#define AGG_TESTS_BENCH_COPY_TURNS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/cuda/cuda_memory.h"
#include "tests/bench/turn_rates.h"

namespace agg {

// Ends the process with a message if a call fails. Thread-compatible.
class CopyTurns {
 public:
  // Each copy reads `num_bytes` of one allocation and writes them to another;
  // both are made here. REQUIRES: `stream` outlives it.
  CopyTurns(cudaStream_t stream, int64_t num_bytes);
  ~CopyTurns();
  CopyTurns(const CopyTurns&) = delete;
  CopyTurns& operator=(const CopyTurns&) = delete;

  cudaStream_t stream() const { return stream_; }
  int64_t num_bytes() const { return num_bytes_; }
  char* from() const { return from_.get(); }
  char* to() const { return to_.get(); }
  // What a copy reads and writes, together.
  double copied_bytes() const { return 2.0 * static_cast<double>(num_bytes_); }

  // Turns of a copy and of what `launch` gives the stream, after one to warm
  // up: 15, or fewer (3 at least) where they would take longer than a second.
  // The stream has the next turn before it is done with the last one, so that
  // launching is not timed.
  std::vector<Turn> Measure(const std::function<void()>& launch);

 private:
  // After a copy that is not timed, which keeps the device busy meanwhile.
  std::vector<Turn> Run(int num_turns, const std::function<void()>& launch);
  void Copy();

  const cudaStream_t stream_;
  const int64_t num_bytes_;
  const cuda::DeviceMemory from_, to_;
  std::vector<cudaEvent_t> events_;  // before, between and behind each turn
};

}  // namespace agg

#endif  // AGG_TESTS_BENCH_COPY_TURNS_H_
