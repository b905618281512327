#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/backend_conformance.h"
#include "tests/conformance/oracle.h"

namespace agg {
namespace {

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
    for (const DType dtype : {DType::kF32, DType::kI8}) {
      const TestRows rows = RandomRows(dtype, num_rows, 133);
      ExpectGram(backend_.get(), rows, {{0, 133}}, GetParam().gram_slack);
    }
  }
}

TEST_P(BackendConformance, GramOfEverySizeAndDType) {
  for (const DType dtype : kRowDTypes) {
    const std::vector<ElementRange> ranges =
        LayOut({1, 7, 8, 31, 0, 1000, 65537}, dtype);
    for (const int64_t num_rows : {1, 3, 6}) {
      const TestRows rows = RandomRows(dtype, num_rows, LayoutElements(ranges));
      ExpectGram(backend_.get(), rows, ranges, GetParam().gram_slack);
    }
  }
}

// Row counts at which backends change how they multiply, and ranges that end
// within whatever is multiplied at once.
TEST_P(BackendConformance, GramOfEveryGroupingOfRows) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const std::vector<ElementRange> ranges = LayOut({1333, 15}, dtype);
    for (const int64_t num_rows : {8, 9, 16, 17, 24, 25, 32, 33, 64}) {
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
  for (const DType dtype : kRowDTypes) {
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
// Products of int8 are added in integers: with scales that are powers of two
// nothing is rounded, however much cancels.
TEST_P(BackendConformance, GramOfInt8IsExactWithinABlockOfScales) {
  constexpr int64_t kNumElements = 255;
  TestRows rows(backend_.get(), DType::kI8, 3, kNumElements);
  for (int64_t k = 0; k < kNumElements; ++k) {
    rows.Set(0, k, k % 2 == 0 ? 127.0f : -127.0f);
    rows.Set(1, k, std::ldexp(k == 100 ? -126.0f : 127.0f, -140));
    rows.Set(2, k, 0.0f);  // scale 0
  }
  rows.Land();
  for (const bool compensated : {false, true}) {
    const GramResult gram =
        RunGram(backend_.get(), rows, {{0, kNumElements}}, compensated);
    EXPECT_EQ(gram.hi[0], 255.0 * 127 * 127);
    // 128 terms less 127, one of which has another sign and size.
    EXPECT_EQ(gram.hi[1], std::ldexp(127.0 * 127 - 127 * (127 + 126), -140));
    EXPECT_EQ(gram.hi[2], 0.0);
    EXPECT_EQ(gram.hi[3], std::ldexp(254.0 * 127 * 127 + 126 * 126, -280));
  }
}

// What a foreign client may send: -128, and scales below zero.
TEST_P(BackendConformance, GramOfInt8TakesEveryByteAndScale) {
  TestRows rows(backend_.get(), DType::kI8, 2, 300);
  rows.Land();
  const float scales[2][2] = {{-0.5f, 3.0f}, {2.0f, -0.25f}};
  for (int64_t row = 0; row < 2; ++row) {
    std::fill_n(rows.host(row), 300, static_cast<char>(-128));
    std::memcpy(rows.host(row) + 512, scales[row], sizeof(scales[row]));
  }
  for (int64_t row = 0; row < 2; ++row) {
    backend_->RowLanded(*rows.rows()[row], DType::kI8, {0, 300});
  }
  const GramResult gram = RunGram(backend_.get(), rows, {{0, 300}}, false);
  const double square = 128.0 * 128.0;
  EXPECT_EQ(gram.hi[0], square * (256 * 0.25 + 44 * 9));
  EXPECT_EQ(gram.hi[1], square * (256 * -1.0 + 44 * -0.75));
  EXPECT_EQ(gram.hi[2], square * (256 * 4.0 + 44 * 0.0625));
}

TEST_P(BackendConformance, EqualRowsHaveEqualEntries) {
  // Also where a backend multiplies rows with those of another group of them.
  const std::vector<std::pair<int64_t, int64_t>> sizes = {
      {3, 3000}, {9, 66000}, {33, 3000}, {65, 700}};
  for (const DType dtype : kRowDTypes) {
    for (const auto& [num_rows, num_elements] : sizes) {
      TestRows rows(backend_.get(), dtype, num_rows, num_elements);
      std::normal_distribution<float> normal;
      for (int64_t k = 0; k < num_elements; ++k) {
        const float value = normal(random_);
        for (int64_t row = 0; row < num_rows; ++row) rows.Set(row, k, value);
      }
      rows.Land();
      const GramResult result =
          RunGram(backend_.get(), rows, {{0, num_elements}}, false);
      for (const double entry : result.hi) {
        ASSERT_EQ(entry, result.hi[0]) << num_rows << " rows";
      }
    }
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

TEST_P(BackendConformance, GramRefusesInt8RowsThatDoNotFit) {
  const TestRows rows = RandomRows(DType::kI8, 2, 512);
  const TestRows larger = RandomRows(DType::kI8, 1, 768);
  std::vector<double> hi(3);
  GramRequest request;
  request.dtype = DType::kI8;
  request.hi = absl::MakeSpan(hi);
  const auto code = [&](const ElementRange& range, const Buffer* second) {
    const std::vector<const Buffer*> both = {rows.rows()[0], second};
    request.rows = both;
    request.ranges = absl::MakeConstSpan(&range, 1);
    return backend_->Gram(request).code();
  };
  EXPECT_EQ(code({256, 256}, rows.rows()[1]), absl::StatusCode::kOk);
  // Not at a block of scales; one element too many; scales at another place.
  EXPECT_EQ(code({32, 32}, rows.rows()[1]), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({256, 257}, rows.rows()[1]),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({256, 256}, larger.rows()[0]),
            absl::StatusCode::kInvalidArgument);
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
