// What the server asks the CUDA backend for, and what the backend then launches
// at once: the same numbers, from where they are kept.
#ifndef AGG_TESTS_BENCH_BACKEND_WAVES_H_
#define AGG_TESTS_BENCH_BACKEND_WAVES_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/chunk_plan.h"

namespace agg {

// A large tensor's slices, as large as they get.
std::vector<ElementRange> SlicesOf(int64_t num_elements);

// Of a tensor whose slices are complete at about the same time: a call of Gram
// for each batch of EarlyGrams, and each call in waves that fit the backend's
// memory for partial sums.
std::vector<cuda::Wave> GramWaves(int num_rows, int64_t num_elements);

// One call of Update.
std::vector<cuda::Wave> UpdateWaves(int num_rows, int64_t num_elements);

// All slices at once: what no backend launches.
cuda::Wave OneWave(int64_t num_elements);

}  // namespace agg

#endif  // AGG_TESTS_BENCH_BACKEND_WAVES_H_
