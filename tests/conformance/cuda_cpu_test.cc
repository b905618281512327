// The GPU beside the CPU, and beside itself: what the suite's bounds do not
// say. Update must have the CPU's very bits; Gram those of its own last run.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/optimizer_table.h"
#include "kernels/row_format.h"
#include "tests/conformance/backend_conformance.h"

namespace agg {
namespace {

// Any bits, finite, of all magnitudes.
uint32_t AnyElement(DType dtype, std::mt19937* random) {
  for (;;) {
    const auto bits = static_cast<uint32_t>((*random)());
    const uint32_t exponent = dtype == DType::kF32    ? bits >> 23 & 0xff
                              : dtype == DType::kBF16 ? bits >> 7 & 0xff
                                                      : bits >> 10 & 0x1f;
    if (dtype == DType::kI8) return bits & 0xff;
    if (exponent != (dtype == DType::kF16 ? 0x1fu : 0xffu)) return bits;
  }
}

// One backend with rows and the arrays of a step.
struct Side {
  std::unique_ptr<Backend> backend;
  std::vector<std::unique_ptr<Buffer>> rows;
  std::vector<const Buffer*> row_pointers;
  std::unique_ptr<Buffer> master, state0, state1, snapshot, narrowed;

  void Allocate(DType dtype, int64_t num_rows, int64_t num_elements) {
    const int64_t alignment = LayoutAlignment(dtype);
    const int64_t row_elements =
        (num_elements + alignment - 1) / alignment * alignment;
    const auto make = [this](BufferUse use, int64_t num_bytes) {
      auto buffer = backend->Allocate(use, num_bytes);
      EXPECT_TRUE(buffer.ok()) << buffer.status();
      return *std::move(buffer);
    };
    for (int64_t r = 0; r < num_rows; ++r) {
      rows.push_back(make(BufferUse::kRow, RowBytes(dtype, row_elements)));
      row_pointers.push_back(rows.back().get());
    }
    master = make(BufferUse::kState, num_elements * 4);
    state0 = make(BufferUse::kState, num_elements * 4);
    state1 = make(BufferUse::kState, num_elements * 4);
    snapshot = make(BufferUse::kSnapshot, num_elements * 4);
    narrowed = make(BufferUse::kSnapshot, num_elements * 2);
  }

  // Before another backend takes its backend's place.
  void FreeBuffers() {
    rows.clear();
    row_pointers.clear();
    for (auto* buffer : {&master, &state0, &state1, &snapshot, &narrowed}) {
      *buffer = nullptr;
    }
  }

  void Land(DType dtype, int64_t num_elements) {
    for (const auto& row : rows) {
      backend->RowLanded(*row, dtype, {0, num_elements});
    }
  }

  std::vector<double> Gram(DType dtype, const std::vector<ElementRange>& ranges,
                           bool compensated) {
    const size_t num_doubles = ranges.size() * PackedGramSize(rows.size());
    std::vector<double> results((compensated ? 2 : 1) * num_doubles);
    GramRequest request;
    request.rows = row_pointers;
    request.dtype = dtype;
    request.ranges = ranges;
    request.compensated = compensated;
    request.hi = absl::MakeSpan(results).first(num_doubles);
    if (compensated) request.lo = absl::MakeSpan(results).last(num_doubles);
    const absl::Status status = backend->Gram(request);
    EXPECT_TRUE(status.ok()) << status;
    return results;
  }
};

class CudaCpuTest : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    MakeCuda(GramArithmetic::kByDevice);
    cpu_.backend = std::make_unique<CpuBackend>(0);
  }

  void MakeCuda(GramArithmetic gram) {
    CudaOptions options;
    options.gram = gram;
    auto cuda = CudaBackend::Make(options);
    if (!cuda.ok()) GTEST_SKIP() << cuda.status().message();
    cuda_.backend = *std::move(cuda);
  }

  // Equal rows on both sides.
  void Fill(int64_t num_rows, int64_t num_elements, bool any_magnitude) {
    for (Side* side : {&cuda_, &cpu_}) {
      side->Allocate(GetParam(), num_rows, num_elements);
    }
    std::mt19937 random(11);
    const int64_t size = DTypeBytes(GetParam());
    const auto any = [&](DType dtype) {
      uint32_t bits = AnyElement(dtype, &random);
      if (!any_magnitude && dtype != DType::kF16 && dtype != DType::kI8) {
        // Keep sign and mantissa; exponents 2^-3 .. 2^4.
        const int shift = dtype == DType::kF32 ? 23 : 7;
        bits = (bits & ~(0xffu << shift)) | (124u + (random() & 7u)) << shift;
      }
      return bits;
    };
    for (int64_t r = 0; r < num_rows; ++r) {
      char* const to = cuda_.rows[r]->host();
      const int64_t row_bytes = cuda_.rows[r]->num_bytes();
      for (int64_t k = 0; k < num_elements; ++k) {
        const uint32_t bits = any(GetParam());
        std::memcpy(to + k * size, &bits, size);
      }
      for (int64_t k = 0; GetParam() == DType::kI8 && k < num_elements;
           k += kScaleBlockElements) {
        const uint32_t bits = any(DType::kF32);
        std::memcpy(to + ScaleOffset(row_bytes, k), &bits, sizeof(bits));
      }
      std::memcpy(cpu_.rows[r]->host(), to, row_bytes);
    }
    for (Side* side : {&cuda_, &cpu_}) side->Land(GetParam(), num_elements);
  }

  // |gpu - cpu| against both sums' a-priori bound for random signs' length.
  void ExpectNear(const std::vector<double>& gpu,
                  const std::vector<double>& cpu, int64_t num_rows,
                  int64_t num_elements) {
    ASSERT_EQ(gpu.size(), cpu.size());
    const int64_t num_pairs = PackedGramSize(num_rows);
    for (size_t at = 0; at < gpu.size(); at += num_pairs) {
      int64_t pair = static_cast<int64_t>(at);
      std::vector<double> norms;
      for (int64_t i = 0, d = pair; i < num_rows; d += num_rows - i++) {
        norms.push_back(std::sqrt(cpu[d]));
      }
      for (int64_t i = 0; i < num_rows; ++i) {
        for (int64_t j = i; j < num_rows; ++j, ++pair) {
          // Cauchy-Schwarz bounds the sum of magnitudes.
          ASSERT_NEAR(gpu[pair], cpu[pair],
                      0x1p-52 * num_elements * norms[i] * norms[j])
              << i << "," << j;
        }
      }
    }
  }

  // Three steps on both sides from the same parameters: the same bits.
  void ExpectSameSteps(const OptimizerOptions& optimizer,
                       const std::vector<UpdateRange>& updates,
                       int64_t num_elements) {
    const DType narrowed =
        GetParam() == DType::kF16 ? DType::kF16 : DType::kBF16;
    for (Side* side : {&cuda_, &cpu_}) {
      std::mt19937 random(5);
      std::normal_distribution<float> normal;
      for (int64_t k = 0; k < num_elements; ++k) {
        const float value = normal(random);
        std::memcpy(side->snapshot->host() + 4 * k, &value, 4);
      }
      ASSERT_TRUE(side->backend
                      ->Load(optimizer, *side->snapshot, side->master.get(),
                             side->state0.get(), side->state1.get(),
                             side->narrowed.get(), narrowed)
                      .ok());
      for (int64_t step = 1; step <= 3; ++step) {
        UpdateRequest request;
        request.rows = side->row_pointers;
        request.dtype = GetParam();
        request.optimizer = optimizer;
        request.step = step;
        request.ranges = updates;
        request.master = side->master.get();
        request.state0 = side->state0.get();
        request.state1 = side->state1.get();
        request.snapshot = side->snapshot.get();
        request.narrowed_snapshot = side->narrowed.get();
        request.narrowed_dtype = narrowed;
        const absl::Status status = side->backend->Update(request);
        ASSERT_TRUE(status.ok()) << status;
      }
    }
    for (const UpdateRange& update : updates) {
      const int64_t begin = update.range.begin;
      const int64_t size = update.range.num_elements;
      EXPECT_EQ(std::memcmp(cuda_.snapshot->host() + 4 * begin,
                            cpu_.snapshot->host() + 4 * begin, 4 * size),
                0)
          << "optimizer " << LineOf(optimizer.kind).name;
      EXPECT_EQ(std::memcmp(cuda_.narrowed->host() + 2 * begin,
                            cpu_.narrowed->host() + 2 * begin, 2 * size),
                0)
          << "optimizer " << LineOf(optimizer.kind).name;
    }
  }

  Side cuda_, cpu_;
};

TEST_P(CudaCpuTest, UpdateHasTheBitsOfTheCpu) {
  constexpr int64_t kNumElements = 100001;
  Fill(5, kNumElements, /*any_magnitude=*/false);
  const std::vector<double> coefficients = {0.25, -1.5, 1e-3, 3.0, 0.125};
  const std::vector<UpdateRange> updates = {
      {{0, 33}, coefficients, 0.1f, 0.01f, 0.5f},
      {{256, 69800}, coefficients, 0.02f, 0.1f, 1.0f},
      {{70144, kNumElements - 70144}, coefficients, 0.3f, 0.0f, 2.0f}};
  for (const OptimizerLine& line : kOptimizers) {
    for (const float momentum : {0.0f, 0.9f}) {
      OptimizerOptions optimizer;
      optimizer.kind = line.kind;
      optimizer.momentum = momentum;
      optimizer.nesterov = momentum != 0.0f;
      ExpectSameSteps(optimizer, updates, kNumElements);
    }
  }
}

// What a step reads: an even and an odd number of arrays, behind an even and an
// odd number of rows, less than is fetched ahead and more.
TEST_P(CudaCpuTest, UpdateHasTheBitsOfTheCpuWhateverAStepReads) {
  constexpr int64_t kNumElements = 9001;
  for (const int num_rows : {1, 2, 3, 4, 8, 256}) {
    for (Side* side : {&cuda_, &cpu_}) side->FreeBuffers();
    Fill(num_rows, kNumElements, /*any_magnitude=*/false);
    std::vector<double> coefficients;
    for (int r = 0; r < num_rows; ++r) coefficients.push_back(r % 7 - 2.5);
    for (const auto& [kind, momentum] :
         {std::pair(OptimizerKind::kNone, 0.0f),
          std::pair(OptimizerKind::kSgd, 0.0f),
          std::pair(OptimizerKind::kSgd, 0.9f),
          std::pair(OptimizerKind::kAdam, 0.0f)}) {
      OptimizerOptions optimizer;
      optimizer.kind = kind;
      optimizer.momentum = momentum;
      ExpectSameSteps(
          optimizer,
          {{{0, 2048}, coefficients, 0.1f, 0.01f, 0.5f},
           {{2048, kNumElements - 2048}, coefficients, 0.02f, 0.1f, 1.0f}},
          kNumElements);
    }
  }
}

// More than the kernel has pointers of in shared memory at a time.
TEST_P(CudaCpuTest, UpdateOf515RowsHasTheBitsOfTheCpu) {
  constexpr int64_t kNumElements = 6000;
  Fill(515, kNumElements, /*any_magnitude=*/false);
  std::vector<double> coefficients;
  for (int r = 0; r < 515; ++r) coefficients.push_back(r % 7 - 2.5);
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::kAdam;
  ExpectSameSteps(
      optimizer,
      {{{0, 300}, coefficients, 0.1f, 0.01f, 0.5f},
       {{512, kNumElements - 512}, coefficients, 0.02f, 0.1f, 1.0f}},
      kNumElements);
}

TEST_P(CudaCpuTest, GramIsTheCpusUpToRounding) {
  for (const int64_t num_rows : {1, 4, 13, 40, 70}) {
    for (Side* side : {&cuda_, &cpu_}) side->FreeBuffers();
    constexpr int64_t kNumElements = 150000;
    Fill(num_rows, kNumElements, /*any_magnitude=*/true);
    const std::vector<ElementRange> ranges = {
        {0, 1000}, {1024, 5}, {1280, kNumElements - 1280}};
    ExpectNear(cuda_.Gram(GetParam(), ranges, false),
               cpu_.Gram(GetParam(), ranges, false), num_rows, kNumElements);
  }
}

TEST_P(CudaCpuTest, TwoRunsHaveTheSameBits) {
  constexpr int64_t kNumElements = 300000;
  const std::vector<ElementRange> ranges = {{0, 65537},
                                            {65792, kNumElements - 65792}};
  for (const GramArithmetic gram :
       {GramArithmetic::kDouble, GramArithmetic::kDoubleFloat}) {
    for (Side* side : {&cuda_, &cpu_}) side->FreeBuffers();
    MakeCuda(gram);
    Fill(37, kNumElements, /*any_magnitude=*/true);
    for (const bool compensated : {false, true}) {
      const auto first = cuda_.Gram(GetParam(), ranges, compensated);
      for (int run = 0; run < 5; ++run) {
        const auto again = cuda_.Gram(GetParam(), ranges, compensated);
        EXPECT_EQ(std::memcmp(first.data(), again.data(),
                              first.size() * sizeof(double)),
                  0);
      }
    }
  }
}

// Indices beyond 2^31 elements: two rows of 2 bytes, about 9 GB on the device
// and as much pinned, so only when asked for: AGG_HUGE_ROWS=1.
TEST_P(CudaCpuTest, HugeRows) {
  if (std::getenv("AGG_HUGE_ROWS") == nullptr) {
    GTEST_SKIP() << "takes 9 GB of pinned memory; AGG_HUGE_ROWS=1 runs it";
  }
  if (GetParam() != DType::kBF16) GTEST_SKIP() << "bf16 alone is enough";
  const int64_t num_elements = (int64_t{1} << 31) + 100000;
  for (int r = 0; r < 2; ++r) {
    auto row = cuda_.backend->Allocate(BufferUse::kRow, num_elements * 2);
    ASSERT_TRUE(row.ok()) << row.status();
    cuda_.rows.push_back(*std::move(row));
    cuda_.row_pointers.push_back(cuda_.rows.back().get());
    auto* const values = reinterpret_cast<uint16_t*>(cuda_.rows.back()->host());
    // 1 everywhere, and 2 in one row's last element.
    std::fill(values, values + num_elements, uint16_t{0x3f80});
    if (r == 1) values[num_elements - 1] = 0x4000;
  }
  cuda_.Land(GetParam(), num_elements);
  const auto gram = cuda_.Gram(GetParam(), {{0, num_elements}}, false);
  const double n = static_cast<double>(num_elements);
  EXPECT_EQ(gram, std::vector<double>({n, n + 1, n + 3}));
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaCpuTest,
                         testing::Values(DType::kF32, DType::kBF16, DType::kF16,
                                         DType::kI8),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(DTypeName(info.param));
                         });

}  // namespace
}  // namespace agg
