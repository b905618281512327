#include "tests/bench/backend_waves.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cuda/args_block.h"
#include "kernels/cuda/cuda_scratch.h"
#include "proto/shard_plan.h"
#include "server/round/phase.h"
#include "server/shard/open_round.h"

namespace agg {

std::vector<ElementRange> SlicesOf(int64_t num_elements) {
  std::vector<ElementRange> slices;
  for (int64_t k = 0; k < num_elements; k += kMaxSliceElements) {
    slices.push_back({k, std::min(kMaxSliceElements, num_elements - k)});
  }
  return slices;
}

std::vector<cuda::Wave> GramWaves(int num_rows, int64_t num_elements) {
  const std::vector<ElementRange> slices = SlicesOf(num_elements);
  const auto num_slices = static_cast<int32_t>(slices.size());
  std::vector<RoundRow> rows(num_rows);
  for (int r = 0; r < num_rows; ++r) rows[r].rank = r;
  EarlyGrams calls;
  calls.Expect(rows, num_slices);
  for (int32_t s = 0; s < num_slices; ++s) calls.SliceComplete(s);
  const int64_t max_chunks = cuda::GramWaveChunks(
      PackedGramSize(num_rows) * static_cast<int64_t>(sizeof(double)),
      cuda::kPartialBytes);
  std::vector<cuda::Wave> waves;
  while (calls.any_ready()) {
    std::vector<ElementRange> ranges;
    for (const int32_t s :
         calls.Take(slices, cuda::kGramProductsAtOnce).slices) {
      ranges.push_back(slices[s]);
    }
    calls.Finish({});
    for (cuda::Wave& wave : cuda::PlanWaves(ranges, max_chunks, max_chunks)) {
      waves.push_back(std::move(wave));
    }
  }
  return waves;
}

std::vector<cuda::Wave> UpdateWaves(int num_rows, int64_t num_elements) {
  return cuda::PlanWaves({{0, num_elements}}, cuda::kMaxUpdateChunks,
                         cuda::UpdateWaveSlots(num_rows));
}

cuda::Wave OneWave(int64_t num_elements) {
  const std::vector<ElementRange> slices = SlicesOf(num_elements);
  const int64_t all = cuda::NumChunks(num_elements) + 1;
  return cuda::PlanWaves(slices, all, all)[0];
}

}  // namespace agg
