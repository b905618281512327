// What CUDA's runtime says of the device that benchmarks run on, and how many
// blocks of a kernel its multiprocessors run, and could.
#ifndef AGG_TESTS_BENCH_CARD_FACTS_H_
#define AGG_TESTS_BENCH_CARD_FACTS_H_

#include <optional>

#include "kernels/cuda/kernel_args.h"
#include "server/base/json.h"

namespace agg {

// {"name", "compute_capability", "multiprocessors", "memory_bytes",
// "l2_bytes", "ecc", "clock_khz", "memory_clock_khz", "pci_bus_id",
// "cuda_runtime", "cuda_driver"}, of device 0; null for what the runtime does
// not answer. REQUIRES: there is a device.
Json CardFacts();

// Limits of a multiprocessor: registers in four parts, given by 256 to a warp.
struct SmLimits {
  int threads = 0;
  int blocks = 0;
  int registers = 0;
  int shared_bytes = 0;
  int block_shared_bytes = 0;  // that the system takes of each block
};

// Limits of the calling thread's device; none if the runtime does not know them
// all.
std::optional<SmLimits> LimitsOfDevice();

// Blocks by the limits alone, with as much shared memory as there can be: what
// the table of kernels/cuda/README.md has
// (tests/kernels/cuda/kernel_resources.py).
// REQUIRES: use.threads > 0.
int ExpectedBlocks(const cuda::KernelUse& use, const SmLimits& limits);

// {"driver", "expected"}: what the driver says and what the limits allow, null
// where they are not known. Fewer than expected: a wrong shared-memory
// carveout, or another kernel than the table has.
Json BlocksPerSm(const cuda::KernelUse& use,
                 const std::optional<SmLimits>& limits);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_CARD_FACTS_H_
