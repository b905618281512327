// A barrier for workers that are processes of their own. Apart from the worker
// program so that threads can test it, and use it.
#ifndef AGG_TESTS_BENCH_PROCESS_BARRIER_H_
#define AGG_TESTS_BENCH_PROCESS_BARRIER_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace agg {

// What the waiting parties share; all zero at the beginning, so that an empty
// file of this size is a barrier that nobody has to set up.
struct BarrierState {
  std::atomic<uint32_t> num_arrived{0};
  std::atomic<uint32_t> generation{0};
};

// Waits until `num_parties` have called this, in memory that all of them share.
// The state may be used again at once. Sleeps in the kernel: with more parties
// than CPUs, spinning would take time from those that are still on their way.
//
// REQUIRES: every party passes the same num_parties >= 1.
void WaitAtBarrier(BarrierState* state, uint32_t num_parties);

// Maps `path`, whose size must be at least that of BarrierState, for the rest
// of the process' life. NOT_FOUND: cannot be opened or mapped.
absl::StatusOr<BarrierState*> MapBarrier(const std::string& path);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_PROCESS_BARRIER_H_
