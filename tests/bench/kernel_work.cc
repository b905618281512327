#include "tests/bench/kernel_work.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/args_block.h"
#include "kernels/cuda/cuda_scratch.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"
#include "proto/shard_plan.h"
#include "server/round/phase.h"
#include "server/shard/open_round.h"
#include "tests/bench/cuda_must.h"

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

GramWork::GramWork(const DeviceRows& rows, const std::vector<cuda::Wave>& waves,
                   cuda::ArgsBlock* args) {
  const auto num_rows = static_cast<int64_t>(rows.rows.size());
  const int64_t num_pairs = PackedGramSize(num_rows);
  int64_t most_chunks = 0, most_slots = 0;
  for (const cuda::Wave& wave : waves) {
    most_chunks = std::max(most_chunks, wave.num_chunks);
    most_slots = std::max(most_slots, static_cast<int64_t>(wave.slots.size()));
  }
  partial_ = Must(cuda::AllocateDevice(most_chunks * num_pairs * 8));
  host_sums_ =
      Must(cuda::AllocatePinned(most_slots * num_pairs * 8, cuda::NumaNode()));
  Must(args->Begin());
  for (const cuda::Wave& wave : waves) {
    cuda::GramLaunch gram;
    gram.rows = args->Append(absl::MakeConstSpan(rows.rows), &gram.args);
    gram.num_rows = static_cast<int>(num_rows);
    gram.dtype = static_cast<int>(rows.dtype);
    cuda::AppendChunks(wave, args, &gram);
    gram.partial = reinterpret_cast<double*>(partial_.get());
    grams_.push_back(gram);
    cuda::SumLaunch sum;
    sum.partial = gram.partial;
    sum.slots = args->Append(absl::MakeConstSpan(wave.slots), &sum.args);
    sum.num_slots = static_cast<int64_t>(wave.slots.size());
    sum.num_values = num_pairs;
    sum.sums = reinterpret_cast<double*>(host_sums_.get());
    sums_.push_back(sum);
  }
}

void GramWork::Launch(bool double_float, cudaStream_t stream) const {
  for (size_t w = 0; w < grams_.size(); ++w) {
    Must(double_float ? cuda::LaunchGramDoubleFloat(grams_[w], stream)
                      : cuda::LaunchGram(grams_[w], stream));
    Must(cuda::LaunchSums(sums_[w], stream));
  }
}

UpdateWork::UpdateWork(
    const DeviceRows& rows, const OptimizerOptions& optimizer,
    const std::vector<cuda::Wave>& waves,
    const std::function<void(char* memory, int64_t num_bytes)>& fill,
    cuda::ArgsBlock* args) {
  const int num_states = OptimizerStateArrays(optimizer);
  for (int i = 0; i <= num_states; ++i) {
    arrays_.push_back(Must(cuda::AllocateDevice(rows.num_elements * 4)));
  }
  fill(arrays_[0].get(), rows.num_elements * 4);
  not_finite_ = Must(cuda::AllocatePinned(4, cuda::NumaNode()));
  const auto floats = [&](int i) {
    return i > num_states ? nullptr
                          : reinterpret_cast<float*>(arrays_[i].get());
  };
  Must(args->Begin());
  for (const cuda::Wave& wave : waves) {
    const std::vector<StepConstants> constants(
        wave.slots.size(),
        MakeStepConstants(optimizer, 10, 1e-6f, 0.01f, 1.0f));
    const std::vector<double> coefficients(
        wave.slots.size() * rows.rows.size(),
        1.0 / static_cast<double>(rows.rows.size()));
    cuda::UpdateLaunch update;
    cuda::InlineArgs* const inlined = &update.args;
    update.rows = args->Append(absl::MakeConstSpan(rows.rows), inlined);
    update.num_rows = static_cast<int>(rows.rows.size());
    update.dtype = static_cast<int>(rows.dtype);
    update.formula = ChooseFormula(optimizer);
    update.num_states = num_states;
    cuda::AppendChunks(wave, args, &update);
    update.constants = args->Append(absl::MakeConstSpan(constants), inlined);
    update.coefficients =
        args->Append(absl::MakeConstSpan(coefficients), inlined);
    update.master = floats(0);
    update.state0 = floats(1);
    update.state1 = floats(2);
    update.not_finite = reinterpret_cast<int*>(not_finite_.get());
    updates_.push_back(update);
  }
}

void UpdateWork::Launch(cudaStream_t stream) const {
  for (const cuda::UpdateLaunch& update : updates_) {
    Must(cuda::LaunchUpdate(update, stream));
  }
}

}  // namespace agg
