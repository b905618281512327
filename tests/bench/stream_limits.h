// What this machine's memory gives to loops that do next to no arithmetic:
// the yardsticks of kernels_bench.
#ifndef AGG_TESTS_BENCH_STREAM_LIMITS_H_
#define AGG_TESTS_BENCH_STREAM_LIMITS_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/thread_pool.h"

namespace agg {

// Reads all bytes once, in units of 1 MiB; the sum keeps the loop alive.
double ReadAll(ThreadPool* pool, const char* data, int64_t num_bytes);

// Copies with memcpy, in units of 1 MiB.
void CopyAll(ThreadPool* pool, const char* from, char* to, int64_t num_bytes);

// The traffic of an Update: reads the rows, reads and writes the state
// arrays, writes one more array, in float32 additions; `streaming`: past the
// cache into the last one.
struct UpdateTraffic {
  std::vector<const float*> rows;
  std::vector<float*> states;
  float* written = nullptr;
  int64_t num_elements = 0;
  bool streaming = false;
};
void MoveUpdateTraffic(ThreadPool* pool, const UpdateTraffic& traffic);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_STREAM_LIMITS_H_
