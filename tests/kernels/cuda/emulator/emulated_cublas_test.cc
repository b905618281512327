// Many rows through tiles and (a stand-in for) cuBLAS: the same Gram matrices
// as the hand kernels'.
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/narrow_float.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

constexpr int kNumRows = 35;
constexpr int64_t kNumElements = 134000;
// Two tiles with a rest; too small for tiles; one that no tile divides.
const std::vector<ElementRange>& Ranges() {
  static const auto* const ranges = new std::vector<ElementRange>(
      {{0, 66561}, {66592, 1000}, {67616, 66384}});
  return *ranges;
}

constexpr int64_t kManyRows = 32;

std::unique_ptr<Backend> MakeCuda(bool use_cublas,
                                  int64_t many_rows = kManyRows) {
  emulator::SetLazy(false);
  CudaOptions options;
  options.use_cublas = use_cublas;
  options.many_rows = many_rows;
  options.cublas_path = "tests/kernels/cuda/emulator/libfake_cublas.so";
  auto made = CudaBackend::Make(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

std::vector<double> GramOf(bool use_cublas, DType dtype) {
  const std::unique_ptr<Backend> backend = MakeCuda(use_cublas);
  EXPECT_THAT(backend->description(),
              testing::HasSubstr(use_cublas ? "cuBLAS of tests/kernels"
                                            : "hand kernels"));
  std::mt19937 random(17);
  std::vector<std::unique_ptr<Buffer>> rows;
  std::vector<const Buffer*> pointers;
  for (int r = 0; r < kNumRows; ++r) {
    const int64_t size = DTypeBytes(dtype);
    rows.push_back(*backend->Allocate(BufferUse::kRow, kNumElements * size));
    pointers.push_back(rows.back().get());
    for (int64_t k = 0; k < kNumElements; ++k) {
      // Multiples of 1/8 of all signs, exact in every dtype: sums are exact.
      const auto eighths = static_cast<int>(random() % 15) - 7;
      const float value = static_cast<float>(eighths) / 8;
      if (dtype == DType::kF32) {
        reinterpret_cast<float*>(rows[r]->host())[k] = value;
      } else {
        reinterpret_cast<uint16_t*>(rows[r]->host())[k] = Bf16OfFloat(value);
      }
    }
    backend->RowLanded(*rows[r], dtype, {0, kNumElements});
  }
  std::vector<double> results(Ranges().size() * PackedGramSize(kNumRows));
  GramRequest request;
  request.rows = pointers;
  request.dtype = dtype;
  request.ranges = Ranges();
  request.hi = absl::MakeSpan(results);
  const absl::Status status = backend->Gram(request);
  EXPECT_TRUE(status.ok()) << status;
  return results;
}

TEST(EmulatedCublasTest, TilesYieldWhatTheHandKernelsYield) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::vector<double> hand = GramOf(false, dtype);
    EXPECT_NE(hand[0], 0.0);
    EXPECT_EQ(GramOf(true, dtype), hand);
  }
}

TEST(EmulatedCublasTest, ALibraryThatCannotMultiplyIsNotUsed) {
  const std::vector<double> hand = GramOf(false, DType::kF32);
  setenv("AGG_FAKE_CUBLAS_FAILS", "1", 1);
  EXPECT_EQ(GramOf(true, DType::kF32), hand);
  unsetenv("AGG_FAKE_CUBLAS_FAILS");
}

TEST(EmulatedCublasTest, OnlyRowsThatAreThereMakeItStart) {
  const std::unique_ptr<Backend> backend = MakeCuda(true);
  const int64_t before = backend->device_memory_use().used_bytes;
  std::vector<std::unique_ptr<Buffer>> rows;
  for (int epoch = 0; epoch < 3; ++epoch) {
    rows.clear();
    for (int r = 0; r < kManyRows; ++r) {
      rows.push_back(*backend->Allocate(BufferUse::kRow, 64));
    }
    EXPECT_EQ(backend->device_memory_use().used_bytes, before + kManyRows * 64);
  }
  rows.push_back(*backend->Allocate(BufferUse::kRow, 64));
  EXPECT_EQ(
      backend->device_memory_use().used_bytes - before - (kManyRows + 1) * 64,
      backend->memory_needs(kManyRows + 1).device_scratch_bytes -
          backend->memory_needs(kManyRows).device_scratch_bytes);
}

// Its memory is neither planned nor taken for rows that hand kernels multiply.
TEST(EmulatedCublasTest, UnlessToldOnlyMoreThan512RowsAreMany) {
  const std::unique_ptr<Backend> backend =
      MakeCuda(true, CudaOptions().many_rows);
  EXPECT_THAT(backend->description(),
              testing::HasSubstr("more than 512 rows: cuBLAS"));
  const int64_t of_few = backend->memory_needs(1).device_scratch_bytes;
  EXPECT_EQ(backend->memory_needs(512).device_scratch_bytes, of_few);
  EXPECT_GT(backend->memory_needs(513).device_scratch_bytes, of_few);
  const int64_t before = backend->device_memory_use().used_bytes;
  std::vector<std::unique_ptr<Buffer>> rows;
  for (int r = 0; r < 512; ++r) {
    rows.push_back(*backend->Allocate(BufferUse::kRow, 64));
  }
  EXPECT_EQ(backend->device_memory_use().used_bytes, before + 512 * 64);
}

}  // namespace
}  // namespace agg
