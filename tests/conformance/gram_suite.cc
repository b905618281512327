#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/oracle.h"

namespace agg {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

struct GramResult {
  std::vector<double> hi;
  std::vector<double> lo;
};

GramResult RunGram(Backend* backend, const TestRows& rows,
                   const std::vector<ElementRange>& ranges, bool compensated) {
  const size_t num_doubles = ranges.size() * PackedGramSize(rows.num_rows());
  GramResult result;
  result.hi.assign(num_doubles, -1.0);
  if (compensated) result.lo.assign(num_doubles, -1.0);
  GramRequest request;
  request.rows = rows.rows();
  request.dtype = rows.dtype();
  request.ranges = ranges;
  request.compensated = compensated;
  request.hi = absl::MakeSpan(result.hi);
  request.lo = absl::MakeSpan(result.lo);
  const absl::Status status = backend->Gram(request);
  EXPECT_TRUE(status.ok()) << status;
  return result;
}

// The a-priori bound of a sum of exact products, Higham's gamma_n times the
// sum of magnitudes, for the longest chain that a backend may have: one
// addition per element. `unit` is the relative error of one addition; `slack`
// comes on top.
void ExpectWithinBound(const oracle::Dot& exact, double hi, double lo,
                       int64_t num_elements, double unit,
                       const GramSlack& slack) {
  const __float128 error = static_cast<__float128>(hi) + lo - exact.sum;
  const double n = static_cast<double>(num_elements);
  const double bound =
      (n * unit + slack.relative) * static_cast<double>(exact.magnitude) +
      n * slack.per_element;
  EXPECT_LE(std::fabs(static_cast<double>(error)), bound)
      << hi << " + " << lo << " for " << static_cast<double>(exact.sum);
}

// Both the plain and the compensated Gram, of every range and pair.
void ExpectGram(Backend* backend, const TestRows& rows,
                const std::vector<ElementRange>& ranges,
                const GramSlack& slack) {
  const GramResult plain = RunGram(backend, rows, ranges, false);
  const GramResult pairs = RunGram(backend, rows, ranges, true);
  size_t at = 0;
  for (const ElementRange& range : ranges) {
    for (int64_t i = 0; i < rows.num_rows(); ++i) {
      for (int64_t j = i; j < rows.num_rows(); ++j, ++at) {
        SCOPED_TRACE(testing::Message()
                     << DTypeName(rows.dtype()) << " pair " << i << "," << j
                     << " of " << range.num_elements << " elements");
        const oracle::Dot exact =
            oracle::ExactDot(rows.values(i, range), rows.values(j, range));
        ExpectWithinBound(exact, plain.hi[at], 0.0, range.num_elements, 0x1p-53,
                          slack);
        // An addition of pairs is off by at most 2^-104 (double_pair.h).
        ExpectWithinBound(exact, pairs.hi[at], pairs.lo[at], range.num_elements,
                          0x1p-104, GramSlack());
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST_P(BackendConformance, GramOfEveryWorkerCount) {
  for (int64_t num_rows = 1; num_rows <= 33; ++num_rows) {
    const TestRows rows = RandomRows(DType::kF32, num_rows, 133);
    ExpectGram(backend_.get(), rows, {{0, 133}}, GetParam().gram_slack);
  }
}

TEST_P(BackendConformance, GramOfEverySizeAndDType) {
  const std::vector<ElementRange> ranges =
      LayOut({1, 7, 8, 31, 0, 1000, 65537});
  for (const DType dtype : kDTypes) {
    for (const int64_t num_rows : {1, 3, 6}) {
      const TestRows rows = RandomRows(dtype, num_rows, LayoutElements(ranges));
      ExpectGram(backend_.get(), rows, ranges, GetParam().gram_slack);
    }
  }
}

TEST_P(BackendConformance, GramOfManyBlocks) {
  const TestRows rows = RandomRows(DType::kBF16, 5, 150001);
  ExpectGram(backend_.get(), rows, {{0, 150001}}, GetParam().gram_slack);
}

TEST_P(BackendConformance, GramOfManyTinyRanges) {
  std::vector<int64_t> sizes(3000);
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = static_cast<int64_t>(i % 41);
  }
  const std::vector<ElementRange> ranges = LayOut(sizes);
  const TestRows rows = RandomRows(DType::kF32, 2, LayoutElements(ranges));
  ExpectGram(backend_.get(), rows, ranges, GetParam().gram_slack);
}

TEST_P(BackendConformance, GramAtTheEndsOfTheFloatRange) {
  for (const float scale : {1e-38f, 1e-30f, 1e30f, 3e37f}) {
    const TestRows rows = RandomRows(DType::kF32, 3, 1000, scale);
    ExpectGram(backend_.get(), rows, {{0, 1000}}, GetParam().gram_slack);
  }
  // Subnormals of f16 and products over 120 orders of magnitude.
  ExpectGram(backend_.get(), RandomRows(DType::kF16, 5, 1000, 3e-6f),
             {{0, 1000}}, GetParam().gram_slack);
  TestRows mixed(backend_.get(), DType::kF32, 5, 999);
  std::uniform_real_distribution<double> exponent(-30.0, 30.0);
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t k = 0; k < 999; ++k) {
      mixed.Set(row, k, static_cast<float>(std::pow(10, exponent(random_))));
    }
  }
  mixed.Land();
  ExpectGram(backend_.get(), mixed, {{0, 999}}, GetParam().gram_slack);
}

// Large terms cancel and leave 3 * 5: a plain sum loses it, pairs must not.
TEST_P(BackendConformance, CompensatedGramSurvivesCancellation) {
  constexpr int64_t kNumElements = 70001;
  TestRows rows(backend_.get(), DType::kF32, 2, kNumElements);
  std::vector<int64_t> order(kNumElements);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random_);
  std::uniform_real_distribution<float> mantissa(1.0f, 2.0f);
  for (int64_t i = 0; i + 1 < kNumElements; i += 2) {
    const float a = std::ldexp(mantissa(random_), 30);
    const float b = std::ldexp(mantissa(random_), 10);
    rows.Set(0, order[i], a);
    rows.Set(1, order[i], b);
    rows.Set(0, order[i + 1], a);
    rows.Set(1, order[i + 1], -b);
  }
  rows.Set(0, order[kNumElements - 1], 3.0f);
  rows.Set(1, order[kNumElements - 1], 5.0f);
  rows.Land();
  const GramResult pairs =
      RunGram(backend_.get(), rows, {{0, kNumElements}}, true);
  EXPECT_EQ(pairs.hi[1] + pairs.lo[1], 15.0);
  ExpectGram(backend_.get(), rows, {{0, kNumElements}}, GetParam().gram_slack);
}

TEST_P(BackendConformance, GramPairsAreNormalised) {
  const TestRows rows = RandomRows(DType::kF32, 3, 5000);
  const GramResult pairs = RunGram(backend_.get(), rows, {{0, 5000}}, true);
  for (size_t at = 0; at < pairs.hi.size(); ++at) {
    EXPECT_EQ(pairs.hi[at] + pairs.lo[at], pairs.hi[at]);
  }
}

TEST_P(BackendConformance, NonFiniteElementsReachTheirDiagonalOnly) {
  const float kSpecial[] = {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  for (const DType dtype : kDTypes) {
    for (const int64_t num_elements : {1, 9, 1000, 70000}) {
      for (const float special : kSpecial) {
        for (const bool compensated : {false, true}) {
          TestRows rows(backend_.get(), dtype, 6, num_elements);
          for (int64_t row = 0; row < 6; ++row) rows.Set(row, 0, 1.0f);
          rows.Set(4, num_elements - 1, special);
          rows.Land();
          const GramResult result =
              RunGram(backend_.get(), rows, {{0, num_elements}}, compensated);
          size_t at = 0;
          for (int64_t i = 0; i < 6; ++i) {
            EXPECT_EQ(std::isfinite(result.hi[at]), i != 4)
                << "row " << i << " of " << num_elements;
            at += 6 - i;
          }
        }
      }
    }
  }
}

// The same row twice: the cosine must be exactly 1, whatever tile or block
// the pair falls into.
TEST_P(BackendConformance, EqualRowsHaveEqualEntries) {
  for (const DType dtype : kDTypes) {
    TestRows rows(backend_.get(), dtype, 9, 66000);
    std::normal_distribution<float> normal;
    for (int64_t k = 0; k < 66000; ++k) {
      const float value = normal(random_);
      for (int64_t row = 0; row < 9; ++row) rows.Set(row, k, value);
    }
    rows.Land();
    const GramResult result =
        RunGram(backend_.get(), rows, {{0, 66000}}, false);
    for (const double entry : result.hi) EXPECT_EQ(entry, result.hi[0]);
  }
}

// Whatever groups a caller asks for ranges in: the same bits.
TEST_P(BackendConformance, OtherRangesDoNotChangeARangesGram) {
  const std::vector<ElementRange> ranges = LayOut({66000, 7, 40000, 129, 0});
  for (const int64_t num_rows : {3, 10}) {
    const TestRows rows =
        RandomRows(DType::kF32, num_rows, LayoutElements(ranges));
    const auto num_pairs = static_cast<ptrdiff_t>(PackedGramSize(num_rows));
    for (const bool compensated : {false, true}) {
      const GramResult all = RunGram(backend_.get(), rows, ranges, compensated);
      for (size_t r = ranges.size(); r-- > 0;) {
        const GramResult alone =
            RunGram(backend_.get(), rows, {ranges[r]}, compensated);
        const auto at = static_cast<ptrdiff_t>(r) * num_pairs;
        EXPECT_TRUE(
            std::equal(alone.hi.begin(), alone.hi.end(), all.hi.begin() + at))
            << "range " << r << " of " << num_rows << " rows";
        if (!compensated) continue;
        EXPECT_TRUE(
            std::equal(alone.lo.begin(), alone.lo.end(), all.lo.begin() + at))
            << "low parts of range " << r << " of " << num_rows << " rows";
      }
    }
  }
}

TEST_P(BackendConformance, GramRefusesWhatDoesNotFit) {
  const TestRows rows = RandomRows(DType::kF32, 2, 64);
  std::vector<double> hi(3);
  const std::vector<ElementRange> ranges = {{32, 33}};  // one too many
  GramRequest request;
  request.rows = rows.rows();
  request.ranges = ranges;
  request.hi = absl::MakeSpan(hi);
  EXPECT_EQ(backend_->Gram(request).code(), absl::StatusCode::kInvalidArgument);
  const std::vector<ElementRange> fitting = {{32, 32}};
  request.ranges = fitting;
  EXPECT_TRUE(backend_->Gram(request).ok());
  request.hi = absl::MakeSpan(hi).first(2);
  EXPECT_EQ(backend_->Gram(request).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace agg
