// The point is kept as its coefficients w; vectors are never formed. From the
// start on the point is among the honest rows, so that a far row's coefficient
// is as small as the row is long, and no difference of long terms is short.
#include "server/combine/geometric_median.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "server/base/dcheck.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/outliers.h"

namespace agg {
namespace {

// sqrt(DBL_MIN): of its inverse there may be many before a sum overflows.
constexpr double kLeastDistance = 1.4916681462400413e-154;
constexpr double kSettled = 4 * std::numeric_limits<double>::epsilon();

double MedianNorm(const GramMatrix& gram) {
  std::vector<double> norms;
  for (int i = 0; i < gram.num_rows(); ++i) {
    norms.push_back(std::sqrt(gram(i, i)));
  }
  return Median(std::move(norms));
}

// The distance within which more than half of the rows are from row i, itself
// among them: of a row that is far from an honest majority as long as it is
// far.
double MajorityRadius(const GramMatrix& gram, int i) {
  std::vector<double> squares;
  for (int j = 0; j < gram.num_rows(); ++j) {
    squares.push_back((gram(i, i) - gram(i, j)) + (gram(j, j) - gram(i, j)));
  }
  const auto middle = squares.begin() + gram.num_rows() / 2;
  std::nth_element(squares.begin(), middle, squares.end());
  return std::sqrt(std::max(*middle, 0.0));
}

void Start(const GramMatrix& gram, double nu, absl::Span<double> coefficients) {
  double sum = 0.0;
  for (int i = 0; i < gram.num_rows(); ++i) {
    coefficients[i] = 1.0 / std::max(nu, MajorityRadius(gram, i));
    sum += coefficients[i];
  }
  for (double& coefficient : coefficients) coefficient /= sum;
}

// One step; whether it has changed a coefficient noticeably.
bool Step(const GramMatrix& gram, double nu, absl::Span<double> coefficients) {
  const std::vector<double> dots = Product(gram, coefficients);
  double norm_squared = 0.0;
  for (size_t i = 0; i < dots.size(); ++i) {
    norm_squared += coefficients[i] * dots[i];
  }
  std::vector<double> next(dots.size());
  double sum = 0.0;
  for (size_t i = 0; i < dots.size(); ++i) {
    const int row = static_cast<int>(i);
    const double squared =
        (norm_squared - dots[i]) + (gram(row, row) - dots[i]);
    next[i] = 1.0 / std::max(nu, std::sqrt(std::max(squared, 0.0)));
    sum += next[i];
  }
  bool moved = false;
  for (size_t i = 0; i < dots.size(); ++i) {
    next[i] /= sum;
    moved |= std::abs(next[i] - coefficients[i]) > kSettled * next[i];
    coefficients[i] = next[i];
  }
  return moved;
}

}  // namespace

void GeometricMedianCoefficients(const GeometricMedianOptions& options,
                                 const GramMatrix& gram,
                                 absl::Span<double> coefficients) {
  AGG_DCHECK(gram.num_rows() >= 1);
  AGG_DCHECK(coefficients.size() == static_cast<size_t>(gram.num_rows()));
  const double nu =
      std::max(options.epsilon * MedianNorm(gram), kLeastDistance);
  Start(gram, nu, coefficients);
  for (int k = 0; k < options.iterations; ++k) {
    if (!Step(gram, nu, coefficients)) return;
  }
}

RuleResult GeometricMedianRule::Combine(const RuleInput& input,
                                        RuleState* /*state*/,
                                        absl::Span<double> coefficients) {
  GeometricMedianCoefficients(input.geometric_median, input.gram, coefficients);
  return ResultOf(input.gram, coefficients);
}

}  // namespace agg
