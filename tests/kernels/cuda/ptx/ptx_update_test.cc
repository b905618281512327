// The PTX of Update, its halves and Norms, launched as the backend launches
// them, beside the CPU backend, whose bits they promise.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/chunk.h"
#include "kernels/cuda/update_kernel.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"
#include "kernels/optimizer_table.h"
#include "kernels/row_format.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"
#include "tests/conformance/oracle.h"
#include "tests/kernels/cuda/ptx/launch_data.h"

namespace agg::ptx {
namespace {

constexpr float kDecay = 0.01f;
constexpr int kSteps = 2;

float RateOf(size_t slot) { return 0.1f + 0.05f * static_cast<float>(slot); }
float TrustOf(size_t slot) { return slot % 2 == 0 ? 1.0f : 0.5f; }

// What an update works on, and how.
struct Problem {
  DType dtype = DType::kF32;
  int num_rows = 1;
  Ranges ranges;
  OptimizerOptions optimizer;
  DType narrowed = DType::kBF16;  // kF32: nothing is narrowed

  std::vector<double> Coefficients(size_t slot) const {
    std::vector<double> coefficients;
    for (int r = 0; r < num_rows; ++r) {
      coefficients.push_back(0.25 + 0.37 * (r % 5) - static_cast<double>(slot));
    }
    return coefficients;
  }
  std::vector<float> Parameters() const {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    std::vector<float> parameters;
    for (int64_t k = 0; k < ranges.num_elements; ++k) {
      parameters.push_back(normal(random));
    }
    return parameters;
  }
};

struct Result {
  std::vector<float> master;
  std::vector<uint16_t> narrowed;
  std::vector<RangeNorms> norms;  // of the step after the last
};

// The CPU's.
class Expectation {
 public:
  Expectation(const Problem& problem, const LaunchRows& rows)
      : problem_(problem), backend_(1) {
    const int64_t layout = (problem.ranges.num_elements + 255) / 256 * 256;
    for (const void* from : rows.pointers()) {
      rows_.push_back(
          Allocate(BufferUse::kRow, RowBytes(problem.dtype, layout)));
      char* const to = rows_.back()->host();
      const int64_t element_bytes =
          std::min(rows.row_bytes(), RowBytes(problem.dtype, layout));
      std::memcpy(to, from, element_bytes);
      pointers_.push_back(rows_.back().get());
    }
    master_ = Allocate(BufferUse::kState, layout * 4);
    state0_ = Allocate(BufferUse::kState, layout * 4);
    state1_ = Allocate(BufferUse::kState, layout * 4);
    snapshot_ = Allocate(BufferUse::kSnapshot, layout * 4);
    narrowed_ = Allocate(BufferUse::kSnapshot, layout * 2);
  }

  Result Run() {
    const std::vector<float> parameters = problem_.Parameters();
    std::memcpy(snapshot_->host(), parameters.data(), 4 * parameters.size());
    EXPECT_TRUE(backend_
                    .Load(problem_.optimizer, *snapshot_, master_.get(),
                          state0_.get(), state1_.get(), Narrowed(),
                          problem_.narrowed)
                    .ok());
    for (int step = 1; step <= kSteps; ++step) {
      const absl::Status status = backend_.Update(Request(step));
      EXPECT_TRUE(status.ok()) << status;
    }
    Result result;
    result.norms.resize(problem_.ranges.slots.size());
    if (OptimizerNeedsNorms(problem_.optimizer.kind)) {
      const absl::Status status =
          backend_.Norms(Request(kSteps + 1), absl::MakeSpan(result.norms));
      EXPECT_TRUE(status.ok()) << status;
    }
    result.master.resize(problem_.ranges.num_elements);
    std::memcpy(result.master.data(), snapshot_->host(),
                4 * result.master.size());
    if (Narrowed() != nullptr) {
      result.narrowed.resize(problem_.ranges.num_elements);
      std::memcpy(result.narrowed.data(), narrowed_->host(),
                  2 * result.narrowed.size());
    }
    return result;
  }

 private:
  std::unique_ptr<Buffer> Allocate(BufferUse use, int64_t num_bytes) {
    auto buffer = backend_.Allocate(use, num_bytes);
    EXPECT_TRUE(buffer.ok());
    return *std::move(buffer);
  }

  Buffer* Narrowed() const {
    return problem_.narrowed == DType::kF32 ? nullptr : narrowed_.get();
  }

  UpdateRequest Request(int step) {
    coefficients_.clear();
    updates_.clear();
    for (size_t s = 0; s < problem_.ranges.slots.size(); ++s) {
      coefficients_.push_back(problem_.Coefficients(s));
    }
    for (size_t s = 0; s < problem_.ranges.slots.size(); ++s) {
      const cuda::Slot& slot = problem_.ranges.slots[s];
      updates_.push_back({{slot.begin, slot.num_elements},
                          coefficients_[s],
                          RateOf(s),
                          kDecay,
                          TrustOf(s)});
    }
    UpdateRequest request;
    request.rows = pointers_;
    request.dtype = problem_.dtype;
    request.optimizer = problem_.optimizer;
    request.step = step;
    request.ranges = updates_;
    request.master = master_.get();
    request.state0 = state0_.get();
    request.state1 = state1_.get();
    request.snapshot = snapshot_.get();
    request.narrowed_snapshot = Narrowed();
    request.narrowed_dtype = problem_.narrowed;
    return request;
  }

  const Problem& problem_;
  CpuBackend backend_;
  std::vector<std::unique_ptr<Buffer>> rows_;
  std::vector<const Buffer*> pointers_;
  std::unique_ptr<Buffer> master_, state0_, state1_, snapshot_, narrowed_;
  std::vector<std::vector<double>> coefficients_;
  std::vector<UpdateRange> updates_;
};

// Arrays that end where the last range ends, and launches on them.
class Launches {
 public:
  Launches(const Problem& problem, const LaunchRows& rows, const RunCase& run)
      : problem_(problem), rows_(rows), run_(run) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, 0), cudaSuccess);
    Use(run);
    const int64_t n = problem.ranges.num_elements;
    master_ = DeviceArray(problem.Parameters());
    state0_ = DeviceArray(std::vector<float>(n));
    state1_ = DeviceArray(std::vector<float>(n));
    combined_ = ArrayIn(PinnedMemory(4 * n), std::vector<float>(n));
    narrowed_ = DeviceArray(std::vector<uint16_t>(n));
    not_finite_ = ArrayIn(PinnedMemory(4), std::vector<int>(1));
    EXPECT_EQ(cuda::LaunchFill(state0_.data, n,
                               InitialState0(problem.optimizer), stream_),
              cudaSuccess);
    if (problem.narrowed == DType::kF32) return;
    EXPECT_EQ(
        cuda::LaunchNarrow(master_.data, n, static_cast<int>(problem.narrowed),
                           narrowed_.data, stream_),
        cudaSuccess);
  }
  ~Launches() { cudaStreamDestroy(stream_); }

  Result Run(bool in_halves) {
    for (int step = 1; step <= kSteps; ++step) {
      WithLaunch(step, [&](const cuda::UpdateLaunch& launch) {
        if (!in_halves) return LaunchUpdate(launch, stream_);
        const cudaError_t error = LaunchCombine(launch, stream_);
        return error == cudaSuccess ? LaunchStep(launch, stream_) : error;
      });
    }
    EXPECT_EQ(not_finite_.data[0], 0);
    Result result;
    result.master = master_.values();
    if (problem_.narrowed != DType::kF32) result.narrowed = narrowed_.values();
    if (OptimizerNeedsNorms(problem_.optimizer.kind)) {
      result.norms = Norms();
      EXPECT_EQ(master_.values(), result.master);
    }
    return result;
  }

 private:
  template <class Launch>
  void WithLaunch(int step, const Launch& launch_it) {
    cuda::UpdateLaunch launch;
    ArgumentPlaces places(run_.pinned, &launch.args);
    std::vector<StepConstants> constants;
    std::vector<double> coefficients;
    for (size_t s = 0; s < problem_.ranges.slots.size(); ++s) {
      constants.push_back(MakeStepConstants(problem_.optimizer, step, RateOf(s),
                                            kDecay, TrustOf(s)));
      const std::vector<double> of_slot = problem_.Coefficients(s);
      coefficients.insert(coefficients.end(), of_slot.begin(), of_slot.end());
    }
    launch.rows = places.Put(rows_.pointers());
    launch.num_rows = problem_.num_rows;
    launch.dtype = static_cast<int>(problem_.dtype);
    launch.scale_offset = rows_.scale_offset();
    launch.formula = ChooseFormula(problem_.optimizer);
    launch.num_states = OptimizerStateArrays(problem_.optimizer);
    launch.slots = places.Put(problem_.ranges.slots);
    launch.num_slots = static_cast<int32_t>(problem_.ranges.slots.size());
    launch.num_chunks = problem_.ranges.num_chunks;
    launch.constants = places.Put(constants);
    launch.coefficients = places.Put(coefficients);
    const std::vector<cuda::Chunk> chunks = ChunksOf(problem_.ranges);
    const auto pinned = ArrayIn(
        PinnedMemory(static_cast<int64_t>(chunks.size() * sizeof(chunks[0]))),
        chunks);
    if (run_.pinned) launch.chunks = pinned.data;
    launch.combined = combined_.data;
    launch.master = master_.data;
    // What the formula has not may be null.
    if (launch.num_states > 0) launch.state0 = state0_.data;
    if (launch.num_states > 1) launch.state1 = state1_.data;
    if (problem_.narrowed != DType::kF32) launch.narrowed = narrowed_.data;
    launch.narrowed_dtype = static_cast<int>(problem_.narrowed);
    launch.not_finite = not_finite_.data;
    EXPECT_EQ(launch_it(launch), cudaSuccess);
  }

  // Sums of the chunks' norms.
  std::vector<RangeNorms> Norms() {
    const auto partial =
        DeviceArray(std::vector<double>(2 * problem_.ranges.num_chunks, -1.0));
    WithLaunch(kSteps + 1, [&](const cuda::UpdateLaunch& launch) {
      return LaunchNorms(launch, partial.data, stream_);
    });
    std::vector<RangeNorms> norms(problem_.ranges.slots.size());
    const std::vector<cuda::Chunk> chunks = ChunksOf(problem_.ranges);
    for (size_t c = 0; c < chunks.size(); ++c) {
      RangeNorms& of_range = norms[chunks[c].slot];
      of_range.parameter_norm_squared += partial.data[2 * c];
      of_range.update_norm_squared += partial.data[2 * c + 1];
    }
    return norms;
  }

  const Problem& problem_;
  const LaunchRows& rows_;
  const RunCase& run_;
  cudaStream_t stream_ = nullptr;
  Array<float> master_, state0_, state1_, combined_;
  Array<uint16_t> narrowed_;
  Array<int> not_finite_;
};

template <class T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b,
              const cuda::Slot& slot) {
  return std::memcmp(&a[slot.begin], &b[slot.begin],
                     slot.num_elements * sizeof(T)) == 0;
}

// Both add the same squares, which are exact, in their own order.
void ExpectNear(double value, double expected, int64_t n) {
  EXPECT_NEAR(value, expected, expected * static_cast<double>(n) * 0x1p-52);
}

void Check(const Problem& problem, const std::vector<RunCase>& runs) {
  SCOPED_TRACE(testing::Message()
               << LineOf(problem.optimizer.kind).name << ", momentum "
               << problem.optimizer.momentum << ", dtype "
               << static_cast<int>(problem.dtype) << ", " << problem.num_rows
               << " rows");
  const LaunchRows rows(problem.dtype, problem.num_rows, problem.ranges);
  const Result expected = Expectation(problem, rows).Run();
  for (const RunCase& run : runs) {
    for (const bool in_halves : {false, true}) {
      SCOPED_TRACE(NameOf(run) + (in_halves ? ", in halves" : ""));
      const Result result = Launches(problem, rows, run).Run(in_halves);
      for (size_t s = 0; s < problem.ranges.slots.size(); ++s) {
        const cuda::Slot& slot = problem.ranges.slots[s];
        EXPECT_TRUE(SameBits(result.master, expected.master, slot)) << s;
        if (problem.narrowed != DType::kF32) {
          EXPECT_TRUE(SameBits(result.narrowed, expected.narrowed, slot)) << s;
        }
        if (result.norms.empty()) continue;
        ExpectNear(result.norms[s].parameter_norm_squared,
                   expected.norms[s].parameter_norm_squared, slot.num_elements);
        ExpectNear(result.norms[s].update_norm_squared,
                   expected.norms[s].update_norm_squared, slot.num_elements);
      }
    }
  }
}

// Every formula that the table has.
std::vector<OptimizerOptions> AllOptimizers() {
  std::vector<OptimizerOptions> all;
  for (const OptimizerLine& line : kOptimizers) {
    OptimizerOptions options;
    options.kind = line.kind;
    options.epsilon = static_cast<float>(line.default_epsilon);
    options.initial_accumulator = 0.1f;
    all.push_back(options);
    if (!line.Uses("momentum")) continue;
    options.momentum = 0.9f;
    all.push_back(options);
    options.nesterov = true;
    all.push_back(options);
  }
  return all;
}

constexpr DType kNarrowed[] = {DType::kBF16, DType::kF16, DType::kF32};
constexpr int kRowCounts[] = {1, 2, 5, 8};

class PtxUpdateTest : public testing::TestWithParam<DType> {};

TEST_P(PtxUpdateTest, HasTheBitsOfTheCpu) {
  size_t i = 0;
  for (const OptimizerOptions& optimizer : AllOptimizers()) {
    Problem problem;
    problem.dtype = GetParam();
    problem.num_rows = kRowCounts[i % 4];
    problem.narrowed = kNarrowed[i % 3];
    problem.optimizer = optimizer;
    problem.ranges = TailRanges();
    Check(problem, {{80, 0, i % 2 == 0}, {90, 0, i % 2 == 1}});
    ++i;
  }
}

TEST_P(PtxUpdateTest, HasTheBitsOfTheCpuInAnyOrder) {
  Problem problem;
  problem.dtype = GetParam();
  problem.num_rows = 5;
  problem.optimizer.kind = OptimizerKind::kLamb;
  problem.ranges = RangesOf({4, 129, 1001});
  Check(problem, {{80, 1, false}, {90, 2, true}, {90, 3, false}});
}

// More rows than the kernel has pointers of in shared memory at a time.
TEST_P(PtxUpdateTest, OfManyRowsHasTheBitsOfTheCpu) {
  Problem problem;
  problem.dtype = GetParam();
  problem.num_rows = 300;
  problem.optimizer.kind = OptimizerKind::kLamb;
  problem.ranges = RangesOf({3, 1200});
  Check(problem, {{80, 0, false}, {90, 0, false}});
}

TEST_P(PtxUpdateTest, OfMoreThanAChunkHasTheBitsOfTheCpu) {
  Problem problem;
  problem.dtype = GetParam();
  problem.num_rows = 2;
  problem.optimizer.kind = OptimizerKind::kAdam;
  problem.ranges = RangesOf({cuda::kChunkElements + 1003, 7});
  Check(problem, {{80, 0, false}, {90, 0, false}});
}

INSTANTIATE_TEST_SUITE_P(DTypes, PtxUpdateTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16,
                                         DType::kI8));

}  // namespace
}  // namespace agg::ptx
