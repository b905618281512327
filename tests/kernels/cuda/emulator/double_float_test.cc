// The Gram in pairs of floats beyond what conformance asks of it: which rows
// are summed in double, and that a pair's bits are its own two rows' affair.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/gram_kernel.h"
#include "tests/conformance/oracle.h"
#include "tests/conformance/test_rows.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

using testing::HasSubstr;

std::unique_ptr<Backend> MakeCuda(GramArithmetic gram) {
  emulator::SetLazy(true);
  CudaOptions options;
  options.use_cublas = false;
  options.gram = gram;
  return *CudaBackend::Make(options);
}

class DoubleFloatTest : public testing::Test {
 protected:
  // Normally distributed, row r times scales[r].
  TestRows Rows(const std::vector<double>& scales, int64_t num_elements,
                DType dtype = DType::kF32) {
    TestRows rows(backend_.get(), dtype, static_cast<int64_t>(scales.size()),
                  num_elements);
    std::mt19937 random(23);
    std::normal_distribution<double> normal;
    for (size_t r = 0; r < scales.size(); ++r) {
      for (int64_t k = 0; k < num_elements; ++k) {
        rows.Set(r, k, static_cast<float>(normal(random) * scales[r]));
      }
    }
    return rows;
  }

  std::vector<double> Gram(TestRows* rows) {
    rows->Land();
    std::vector<double> hi(PackedGramSize(rows->num_rows()));
    const std::vector<ElementRange> ranges = {
        {0, static_cast<int64_t>(rows->values(0).size())}};
    GramRequest request;
    request.rows = rows->rows();
    request.dtype = rows->dtype();
    request.ranges = ranges;
    request.hi = absl::MakeSpan(hi);
    const absl::Status status = backend_->Gram(request);
    EXPECT_TRUE(status.ok()) << status;
    return hi;
  }

  // The bound of gram_kernel.h; that of doubles where a row is not fit.
  void ExpectWithinBounds(TestRows* rows, const std::vector<bool>& fit) {
    const std::vector<double> gram = Gram(rows);
    size_t at = 0;
    for (int64_t i = 0; i < rows->num_rows(); ++i) {
      for (int64_t j = i; j < rows->num_rows(); ++j, ++at) {
        const oracle::Dot exact =
            oracle::ExactDot(rows->values(i), rows->values(j));
        const auto error = static_cast<double>(gram[at] - exact.sum);
        const auto magnitude = static_cast<double>(exact.magnitude);
        const double n = static_cast<double>(rows->values(i).size());
        const double bound =
            fit[i] && fit[j] ? cuda::kDoubleFloatUnit * magnitude + n * 0x1p-150
                             : n * 0x1p-53 * magnitude;
        EXPECT_LE(std::fabs(error), bound) << i << "," << j;
      }
    }
  }

  // The largest error of an entry of random rows, relative to sum |a_k b_k|.
  double WorstError(GramArithmetic arithmetic, int num_rows,
                    int64_t num_elements) {
    backend_ = MakeCuda(arithmetic);
    TestRows rows = Rows(std::vector<double>(num_rows, 1.0), num_elements);
    const std::vector<double> gram = Gram(&rows);
    double worst = 0.0;
    size_t at = 0;
    for (int64_t i = 0; i < num_rows; ++i) {
      for (int64_t j = i; j < num_rows; ++j, ++at) {
        const oracle::Dot exact =
            oracle::ExactDot(rows.values(i), rows.values(j));
        const auto error = static_cast<double>(gram[at] - exact.sum);
        worst = std::fmax(
            worst, std::fabs(error) / static_cast<double>(exact.magnitude));
      }
    }
    return worst;
  }

  std::unique_ptr<Backend> backend_ = MakeCuda(GramArithmetic::kDoubleFloat);
};

TEST_F(DoubleFloatTest, RowsOfAllMagnitudesInOneChunk) {
  TestRows rows =
      Rows({1.0, 1e-30, 1e30, 1e-12, 1e15, 0.0, 1e-38, 1e37, 1e-7}, 5000);
  ExpectWithinBounds(
      &rows, {true, false, false, true, true, true, false, false, true});
}

TEST_F(DoubleFloatTest, AllMagnitudesWithinARow) {
  std::mt19937 random(5);
  for (const double largest : {15.0, 30.0}) {
    TestRows rows(backend_.get(), DType::kF32, 5, 3000);
    std::uniform_real_distribution<double> exponent(-largest, largest);
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t k = 0; k < 3000; ++k) {
        rows.Set(r, k, static_cast<float>(std::pow(10.0, exponent(random))));
      }
    }
    ExpectWithinBounds(&rows, std::vector<bool>(5, largest < 16.0));
  }
}

TEST_F(DoubleFloatTest, AWholeChunkOfTheLargestFitsWithoutOverflow) {
  TestRows rows(backend_.get(), DType::kF32, 2, 16384);
  for (int64_t k = 0; k < 16384; ++k) {
    rows.Set(0, k, 0x1p56f);
    rows.Set(1, k, k % 2 == 0 ? 0x1p56f : -0x1p56f);
  }
  EXPECT_EQ(Gram(&rows), std::vector<double>({0x1p126, 0.0, 0x1p126}));
  for (int64_t k = 0; k < 16384; ++k) rows.Set(0, k, 0x1p57f);
  EXPECT_EQ(Gram(&rows), std::vector<double>({0x1p128, 0.0, 0x1p126}));
}

// Each row has its largest element where the other is zero: all products are
// 2^-152, which is nothing in float.
TEST_F(DoubleFloatTest, RowsThatAreTooSmallAreSummedInDouble) {
  for (const bool fit : {true, false}) {
    TestRows rows(backend_.get(), DType::kF32, 2, 1026);
    for (int64_t k = 2; k < 1026; ++k) {
      for (int64_t r = 0; r < 2; ++r) rows.Set(r, k, 0x1p-76f);
    }
    for (int64_t r = 0; r < 2; ++r) {
      rows.Set(r, r, fit ? 0x1p-45f : std::nextafter(0x1p-45f, 0.0f));
    }
    EXPECT_EQ(Gram(&rows)[1], fit ? 0.0 : 0x1p-142);
  }
}

TEST_F(DoubleFloatTest, OtherRowsDoNotChangeAPairsBits) {
  const float kOthers[] = {1.0f,
                           0.0f,
                           1e30f,
                           1e-30f,
                           std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
  std::vector<std::vector<double>> pairs;
  for (const float other : kOthers) {
    TestRows rows = Rows({1.0, 1.0, 1e31, 1.0}, 20000);
    rows.Set(3, 17, other);
    const std::vector<double> gram = Gram(&rows);
    // (0,0) (0,1) (0,2) (1,1) (1,2) (2,2): some in floats, some in double.
    pairs.push_back({gram[0], gram[1], gram[2], gram[4], gram[5], gram[7]});
    EXPECT_EQ(pairs.back(), pairs.front()) << other;
    const bool finite = std::isfinite(other);
    for (const int of_other : {3, 6, 8, 9}) {
      EXPECT_EQ(std::isfinite(gram[of_other]), finite) << other;
    }
  }
}

TEST_F(DoubleFloatTest, EqualRowsHaveEqualEntriesInDoubleToo) {
  for (const double scale : {1.0, 1e30, 1e-30}) {
    TestRows rows(backend_.get(), DType::kF32, 9, 20000);
    std::mt19937 random(31);
    std::normal_distribution<double> normal;
    for (int64_t k = 0; k < 20000; ++k) {
      // The first chunk alone is out of range.
      const double factor = k < 16384 ? scale : 1.0;
      const auto value = static_cast<float>(factor * normal(random));
      for (int64_t r = 0; r < 9; ++r) rows.Set(r, k, value);
    }
    const std::vector<double> gram = Gram(&rows);
    for (const double entry : gram) EXPECT_EQ(entry, gram[0]);
  }
}

TEST_F(DoubleFloatTest, RunsHaveTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<double> first;
    for (int backend = 0; backend < 2; ++backend) {
      backend_ = MakeCuda(GramArithmetic::kDoubleFloat);
      TestRows rows = Rows({1.0, 3.0, 1e-5, 1.0, 0.1, 20.0}, 40000, dtype);
      if (backend == 0) first = Gram(&rows);
      EXPECT_EQ(Gram(&rows), first);
    }
  }
}

TEST_F(DoubleFloatTest, ZeroRowsAreZero) {
  TestRows rows = Rows({0.0, 1.0, 0.0}, 700);
  const std::vector<double> gram = Gram(&rows);
  for (const int at : {0, 1, 2, 4, 5}) EXPECT_EQ(gram[at], 0.0);
  EXPECT_GT(gram[3], 0.0);
}

// The worst cases are far from what happens: what does is as with doubles on
// tensor cores, which more than 8 rows take. Fewer have many more chains.
TEST_F(DoubleFloatTest, TypicalErrorsAreThoseOfDoubles) {
  for (const int64_t num_elements : {1000, 16384, 163840}) {
    const double few = WorstError(GramArithmetic::kDouble, 6, num_elements);
    const double doubles = WorstError(GramArithmetic::kDouble, 9, num_elements);
    const double floats =
        WorstError(GramArithmetic::kDoubleFloat, 9, num_elements);
    std::printf(
        "%6d elements: double %.0f (6 rows), %.0f (9 rows), pairs of floats "
        "%.0f * 2^-53\n",
        static_cast<int>(num_elements), few * 0x1p53, doubles * 0x1p53,
        floats * 0x1p53);
    EXPECT_LE(few, doubles);
    EXPECT_LE(floats, 2 * doubles);
  }
}

TEST_F(DoubleFloatTest, MoreThan32RowsGoTheSameWay) {
  TestRows rows = Rows(std::vector<double>(35, 1.0), 300);
  ExpectWithinBounds(&rows, std::vector<bool>(35, true));
}

TEST_F(DoubleFloatTest, TheDeviceDecidesUnlessTold) {
  for (const int ratio : {2, 32, 64}) {
    emulator::SetDoubleRatio(ratio);
    const bool slow = ratio >= 32;
    EXPECT_THAT(MakeCuda(GramArithmetic::kByDevice)->description(),
                HasSubstr(slow ? "Gram in pairs of floats" : "Gram in double"));
    EXPECT_THAT(MakeCuda(GramArithmetic::kDouble)->description(),
                HasSubstr("Gram in double"));
    EXPECT_THAT(MakeCuda(GramArithmetic::kDoubleFloat)->description(),
                HasSubstr("Gram in pairs of floats"));
    // In float, 2^-152 is nothing, and the rows are fit for floats.
    backend_ = MakeCuda(GramArithmetic::kByDevice);
    TestRows rows(backend_.get(), DType::kF32, 2, 3);
    for (int64_t r = 0; r < 2; ++r) {
      rows.Set(r, r, 1.0f);
      rows.Set(r, 2, 0x1p-76f);
    }
    EXPECT_EQ(Gram(&rows)[1], slow ? 0.0 : 0x1p-152);
  }
  emulator::SetDoubleRatio(2);
}

}  // namespace
}  // namespace agg
