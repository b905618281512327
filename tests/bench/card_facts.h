// What CUDA's runtime says of the device that benchmarks run on.
#ifndef AGG_TESTS_BENCH_CARD_FACTS_H_
#define AGG_TESTS_BENCH_CARD_FACTS_H_

#include "server/base/json.h"

namespace agg {

// {"name", "compute_capability", "multiprocessors", "memory_bytes",
// "l2_bytes", "ecc", "clock_khz", "memory_clock_khz", "pci_bus_id",
// "cuda_runtime", "cuda_driver"}, of device 0; null for what the runtime does
// not answer. REQUIRES: there is a device.
Json CardFacts();

}  // namespace agg

#endif  // AGG_TESTS_BENCH_CARD_FACTS_H_
