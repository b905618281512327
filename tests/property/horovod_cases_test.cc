// The cases of Horovod's own Adasum tests, with its tolerances:
// ||true - computed|| / ||true|| / 100 < epsilon of the type.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "server/combine/decision.h"
#include "server/combine/options.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

// A floating-point format: what rows and the result are rounded to.
struct Format {
  const char* name;
  int significand_bits;  // the hidden one included
  int min_exponent;      // of the smallest normal value
  double max;

  double Round(double value) const {
    if (value == 0.0) return value;
    const int exponent = std::max(std::ilogb(value), min_exponent);
    const double ulp = std::ldexp(1.0, exponent - significand_bits + 1);
    return std::nearbyint(value / ulp) * ulp;
  }
  double tiny() const { return std::ldexp(1.0, min_exponent); }
  double epsilon() const { return std::ldexp(1.0, 1 - significand_bits); }
};

constexpr Format kFloat32 = {"float32", 24, -126,
                             std::numeric_limits<float>::max()};
constexpr Format kFloat16 = {"float16", 11, -14, 65504.0};

// Whether the sum below any node of the tree over 2^k factors is small.
bool AlmostCancels(const std::vector<double>& factors) {
  for (size_t width = 2; width <= factors.size(); width *= 2) {
    for (size_t begin = 0; begin < factors.size(); begin += width) {
      double sum = 0.0;
      double absolute = 0.0;
      for (size_t i = begin; i < begin + width; ++i) {
        sum += factors[i];
        absolute += std::abs(factors[i]);
      }
      if (std::abs(sum) < 0.1 * absolute) return true;
    }
  }
  return false;
}

class HorovodTest : public ::testing::TestWithParam<Format> {
 protected:
  std::vector<double> Normal(int num_values) {
    std::normal_distribution<double> normal;
    std::vector<double> values(num_values);
    for (double& value : values) value = normal(engine_);
    return values;
  }

  // Factors of random sign. A draw in which a subtree almost cancels is drawn
  // again: there, rounding the rows to the format alone moves even the exact
  // result by more than the tolerance (checked against the tree on vectors).
  std::vector<double> Factors(int num_rows) {
    std::vector<double> factors;
    do {
      factors = Normal(num_rows);
    } while (AlmostCancels(factors));
    return factors;
  }

  // rows_i = elements * factors_i, rounded.
  Rows Parallel(const std::vector<double>& elements,
                const std::vector<double>& factors) {
    Rows rows;
    for (const double factor : factors) {
      rows.push_back(elements);
      for (double& value : rows.back()) {
        value = GetParam().Round(value * factor);
      }
    }
    return rows;
  }

  // Adasum in the format against the sum of the rows divided by `divisor`.
  void ExpectSumOver(const Rows& rows, double divisor) {
    const Decision decision = DecideRows(MakeOptions("adasum"), {}, {rows});
    ASSERT_EQ(decision.kind, DecisionKind::kApply) << decision.skip_reason;
    const std::vector<double>& weights = decision.coefficients[0];
    long double error = 0;
    long double norm = 0;
    for (size_t k = 0; k < rows[0].size(); ++k) {
      double combined = 0.0;
      long double expected = 0;
      for (size_t i = 0; i < rows.size(); ++i) {
        combined += weights[i] * rows[i][k];
        expected += rows[i][k];
      }
      expected /= divisor;
      const long double difference = GetParam().Round(combined) - expected;
      error += difference * difference;
      norm += expected * expected;
    }
    EXPECT_LT(static_cast<double>(std::sqrt(error / norm)) / 100,
              GetParam().epsilon())
        << rows.size() << " rows of " << rows[0].size();
  }

  std::mt19937_64 engine_{12345};
};

// N x P of the QR decomposition of a random matrix, as P rows.
Rows Orthonormal(Rows rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < i; ++j) {
        double dot = 0.0;
        for (size_t k = 0; k < rows[i].size(); ++k) {
          dot += rows[i][k] * rows[j][k];
        }
        for (size_t k = 0; k < rows[i].size(); ++k) {
          rows[i][k] -= dot * rows[j][k];
        }
      }
    }
    double squares = 0.0;
    for (const double value : rows[i]) squares += value * value;
    for (double& value : rows[i]) value /= std::sqrt(squares);
  }
  return rows;
}

TEST_P(HorovodTest, Orthogonal) {
  for (const int p : {2, 4, 8}) {
    for (const int n : {20 * p - 17, 2 * p + 1, p + 2, 1 << 19}) {
      Rows rows;
      for (int i = 0; i < p; ++i) rows.push_back(Normal(n));
      rows = Orthonormal(std::move(rows));
      for (std::vector<double>& row : rows) {
        for (double& value : row) value = GetParam().Round(value);
      }
      ExpectSumOver(rows, 1.0);
    }
  }
}

TEST_P(HorovodTest, Parallel) {
  for (const int p : {2, 4, 8}) {
    for (const int n : {20 * p - 13, 2 * p + 1, p + 2, 1 << 19}) {
      const std::vector<double> elements = Normal(n);
      ExpectSumOver(Parallel(elements, Factors(p)), p);
    }
  }
}

TEST_P(HorovodTest, Stability) {
  for (const int p : {2, 4, 8}) {
    std::vector<double> elements = Normal(1024);
    for (double& value : elements) value *= GetParam().tiny();  // subnormals
    ExpectSumOver(Parallel(elements, Factors(p)), p);
  }
}

TEST_P(HorovodTest, Stability2) {
  for (const int p : {2, 4, 8}) {
    const double max = std::sqrt(GetParam().max);
    const double tiny = GetParam().tiny();
    std::vector<double> factors;
    for (int i = 0; i < p; ++i) {
      factors.push_back(std::pow(max, (i + 1.0) / p) *
                        std::pow(tiny, (p - i - 1.0) / p));
    }
    std::shuffle(factors.begin(), factors.end(), engine_);
    const std::vector<double> elements = Normal(1024);
    ExpectSumOver(Parallel(elements, factors), p);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, HorovodTest,
                         ::testing::Values(kFloat32, kFloat16),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace agg
