// The CPU backend's promise: the same bits on every SIMD target and for every
// number of threads. Compares bytes, over all targets that this machine runs.
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hwy/targets.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gram_kernel.h"
#include "kernels/optimizer_table.h"
#include "kernels/row_format.h"

namespace agg {
namespace {

constexpr int64_t kNumElements = 75000;  // the last range: two blocks
constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16,
                             DType::kI8};

void FillInt8Row(Buffer* row, std::mt19937* random) {
  std::uniform_int_distribution<int> q(-128, 127);
  std::uniform_int_distribution<int> exponent(-140, 30);
  for (int64_t k = 0; k < kNumElements; ++k) {
    row->host()[k] = static_cast<char>(q(*random));
  }
  for (int64_t k = 0; k < kNumElements; k += kScaleBlockElements) {
    const float scale =
        std::ldexp(1.0f + 0.1f * static_cast<float>(k % 7), exponent(*random));
    std::memcpy(row->host() + ScaleOffset(row->num_bytes(), k), &scale, 4);
  }
}

// Finite values of all magnitudes, subnormals included.
void FillRow(Buffer* row, DType dtype, std::mt19937* random) {
  if (dtype == DType::kI8) return FillInt8Row(row, random);
  if (dtype == DType::kF32) {
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<int> exponent(-140, 30);
    for (int64_t k = 0; k < kNumElements; ++k) {
      float value = normal(*random);
      if (k % 5 == 0) value = std::ldexp(value, exponent(*random));
      std::memcpy(row->host() + 4 * k, &value, 4);
    }
    return;
  }
  const uint16_t top = dtype == DType::kBF16 ? 0x4700 : 0x7bff;
  std::uniform_int_distribution<uint16_t> bits(0, top);
  for (int64_t k = 0; k < kNumElements; ++k) {
    const auto value =
        static_cast<uint16_t>(bits(*random) | (k % 2 == 0 ? 0x8000 : 0));
    std::memcpy(row->host() + 2 * k, &value, 2);
  }
}

std::unique_ptr<Buffer> MustAllocate(CpuBackend* backend, int64_t num_bytes) {
  return *backend->Allocate(BufferUse::kState, num_bytes);
}

void Append(const void* data, size_t num_bytes, std::string* bytes) {
  bytes->append(static_cast<const char*>(data), num_bytes);
}

// At multiples of the alignment.
std::vector<ElementRange> Ranges(DType dtype) {
  const int64_t unit = LayoutAlignment(dtype);
  const int64_t last = (2 + 8192 / unit) * unit;
  return {{0, 1}, {unit, 31}, {2 * unit, 8191}, {last, kNumElements - last}};
}

void AppendGrams(CpuBackend* backend, const std::vector<const Buffer*>& rows,
                 DType dtype, std::string* bytes) {
  const std::vector<ElementRange> ranges = Ranges(dtype);
  for (const bool compensated : {false, true}) {
    for (const size_t num_rows : {1, 2, 3, 4, 5, 14}) {
      std::vector<double> hi(ranges.size() * PackedGramSize(num_rows));
      std::vector<double> lo(compensated ? hi.size() : 0);
      GramRequest request;
      request.rows = absl::MakeSpan(rows).first(num_rows);
      request.dtype = dtype;
      request.ranges = ranges;
      request.compensated = compensated;
      request.hi = absl::MakeSpan(hi);
      request.lo = absl::MakeSpan(lo);
      ASSERT_TRUE(backend->Gram(request).ok());
      Append(hi.data(), hi.size() * 8, bytes);
      Append(lo.data(), lo.size() * 8, bytes);
    }
  }
}

// Two steps of an optimizer with Norms before each, a third one in two halves,
// and everything stored.
void AppendSteps(CpuBackend* backend, const std::vector<const Buffer*>& rows,
                 DType dtype, const OptimizerOptions& optimizer,
                 std::string* bytes) {
  std::vector<double> coefficients;
  for (size_t i = 0; i < rows.size(); ++i) {
    coefficients.push_back(1.0 / static_cast<double>(3 * i + 1));
  }
  std::vector<UpdateRange> updates;
  for (const ElementRange& range : Ranges(dtype)) {
    updates.push_back({range, coefficients, 0.01f, 0.1f, 0.7f});
  }
  std::vector<std::unique_ptr<Buffer>> arrays;
  for (int i = 0; i < 4; ++i) {
    arrays.push_back(MustAllocate(backend, 4 * kNumElements));
  }
  arrays.push_back(MustAllocate(backend, 2 * kNumElements));
  arrays.push_back(MustAllocate(backend, 4 * kNumElements));
  UpdateRequest request;
  request.rows = rows;
  request.dtype = dtype;
  request.optimizer = optimizer;
  request.ranges = updates;
  request.master = arrays[0].get();
  request.state0 = arrays[1].get();
  request.state1 = arrays[2].get();
  request.snapshot = arrays[3].get();
  request.narrowed_snapshot = arrays[4].get();
  request.narrowed_dtype = dtype == DType::kF16 ? dtype : DType::kBF16;
  request.combined = arrays[5].get();
  std::vector<RangeNorms> norms(updates.size());
  for (request.step = 1; request.step <= 2; ++request.step) {
    ASSERT_TRUE(backend->Norms(request, absl::MakeSpan(norms)).ok());
    Append(norms.data(), norms.size() * sizeof(RangeNorms), bytes);
    ASSERT_TRUE(backend->Update(request).ok());
  }
  ASSERT_TRUE(backend->Combine(request).ok());
  ASSERT_TRUE(backend->Step(request).ok());
  for (const auto& array : arrays) {
    Append(array->host(), array->num_bytes(), bytes);
  }
}

// Everything that the backend computes, one behind the other.
std::string AllBytes(int num_threads, DType dtype) {
  CpuBackend backend(num_threads);
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<const Buffer*> rows;
  for (int i = 0; i < 14; ++i) {
    const int64_t unit = LayoutAlignment(dtype);
    const int64_t row_elements = (kNumElements + unit - 1) / unit * unit;
    buffers.push_back(MustAllocate(&backend, RowBytes(dtype, row_elements)));
    FillRow(buffers.back().get(), dtype, &random);
    rows.push_back(buffers.back().get());
  }
  std::string bytes;
  AppendGrams(&backend, rows, dtype, &bytes);
  for (const OptimizerLine& line : kOptimizers) {
    OptimizerOptions optimizer;
    optimizer.kind = line.kind;
    optimizer.momentum = 0.9f;
    optimizer.nesterov = true;
    for (const size_t num_rows : {1, 6}) {
      AppendSteps(&backend, {rows.begin(), rows.begin() + num_rows}, dtype,
                  optimizer, &bytes);
    }
  }
  return bytes;
}

class BitsTest : public testing::TestWithParam<DType> {
 protected:
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(BitsTest, AreThoseOfEveryTargetAndThreadCount) {
  const std::string expected = AllBytes(1, GetParam());
  ASSERT_FALSE(expected.empty());
  // Not EXPECT_EQ: megabytes of differences are no message.
  EXPECT_TRUE(AllBytes(2, GetParam()) == expected) << "2 threads";
  EXPECT_TRUE(AllBytes(5, GetParam()) == expected) << "5 threads";
  std::set<std::string> compared;
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    // Targets that are not compiled in are served by the scalar code.
    const std::string target(SimdTargetName());
    if (!compared.insert(target).second) continue;
    EXPECT_TRUE(AllBytes(2, GetParam()) == expected) << target;
    std::printf("compared: %s\n", target.c_str());
  }
  EXPECT_GE(compared.size(), 2u) << "nothing to compare on this machine";
}

INSTANTIATE_TEST_SUITE_P(DTypes, BitsTest, testing::ValuesIn(kDTypes),
                         [](const testing::TestParamInfo<DType>& info) {
                           return std::string(DTypeName(info.param));
                         });

}  // namespace
}  // namespace agg
