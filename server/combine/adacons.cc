// The steps have the names and the order of server/combine/README.md 4:
// alphas, sort, momentum, normalise with a guard, rescale.
#include "server/combine/adacons.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "server/base/dcheck.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/means.h"

namespace agg {
namespace {

// Below this share of sum|alpha'| a sum of alpha' has no reliable sign.
constexpr double kMinSumShare = 1e-6;

// The alphas; *norms gets the n_i.
std::vector<double> RawAlphas(const GramMatrix& gram, double epsilon,
                              std::vector<double>* norms) {
  const int num_rows = gram.num_rows();
  // Each row's inner product with the sum of all rows.
  std::vector<double> alphas =
      Product(gram, std::vector<double>(num_rows, 1.0));
  norms->resize(num_rows);
  for (int i = 0; i < num_rows; ++i) {
    (*norms)[i] = std::sqrt(gram(i, i)) + epsilon;
    alphas[i] = alphas[i] / (*norms)[i] / num_rows;
  }
  return alphas;
}

// The momentum after this round.
std::vector<double> NextMomentum(double beta, const std::vector<double>& old,
                                 const std::vector<double>& alphas,
                                 const std::vector<int>& order) {
  const int num_rows = static_cast<int>(alphas.size());
  std::vector<double> momentum(num_rows);
  for (int k = 0; k < num_rows; ++k) momentum[k] = alphas[order[k]];
  if (old.empty()) return momentum;
  const std::vector<double> previous = static_cast<int>(old.size()) == num_rows
                                           ? old
                                           : ResampleMomentum(old, num_rows);
  for (int k = 0; k < num_rows; ++k) {
    momentum[k] = beta * previous[k] + (1.0 - beta) * momentum[k];
  }
  return momentum;
}

// Un-sorts and normalises in `coefficients`; false when the guard fires.
bool Normalise(const std::vector<double>& momentum,
               const std::vector<int>& order, absl::Span<double> coefficients) {
  for (size_t k = 0; k < order.size(); ++k) {
    coefficients[order[k]] = momentum[k];
  }
  double sum = 0.0;
  double absolute_sum = 0.0;
  for (const double alpha : coefficients) {
    sum += alpha;
    absolute_sum += std::abs(alpha);
  }
  if (!std::isfinite(absolute_sum) || !(sum > kMinSumShare * absolute_sum)) {
    return false;
  }
  for (double& alpha : coefficients) alpha /= sum;
  return true;
}

// The factor of server/combine/README.md 4.3; not finite for match_mean on a
// combination of length 0.
double RescaleFactor(AdaconsRescale rescale, const GramMatrix& gram,
                     absl::Span<const double> coefficients) {
  const int num_rows = gram.num_rows();
  if (rescale == AdaconsRescale::kNone) return 1.0;
  if (rescale == AdaconsRescale::kMeanNorm) {
    double sum = 0.0;
    for (int i = 0; i < num_rows; ++i) sum += std::sqrt(gram(i, i));
    return sum / num_rows;
  }
  const double mean_squared =
      SumOfEntries(gram) / num_rows / static_cast<double>(num_rows);
  return std::sqrt(mean_squared / QuadraticForm(gram, coefficients));
}

// Everything before the guard. The momentum is written last: a coefficient that
// is not finite must not reach it, or it would stay there for ever.
bool Attempt(const AdaconsOptions& options, const GramMatrix& gram,
             std::vector<double>* momentum, absl::Span<double> coefficients) {
  const int num_rows = gram.num_rows();
  std::vector<double> norms;
  const std::vector<double> alphas = RawAlphas(gram, options.epsilon, &norms);
  for (const double alpha : alphas) {
    if (!std::isfinite(alpha)) return false;
  }
  std::vector<int> order(num_rows);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&alphas](int i, int j) {
    return alphas[i] != alphas[j] ? alphas[i] < alphas[j] : i < j;
  });
  std::vector<double> next =
      NextMomentum(options.beta, *momentum, alphas, order);
  if (!Normalise(next, order, coefficients)) return false;
  for (int i = 0; i < num_rows; ++i) coefficients[i] /= norms[i];
  const double factor = RescaleFactor(options.rescale, gram, coefficients);
  if (!std::isfinite(factor)) return false;
  for (double& coefficient : coefficients) {
    coefficient *= factor;
    if (!std::isfinite(coefficient)) return false;
  }
  *momentum = std::move(next);
  return true;
}

}  // namespace

bool AdaconsCoefficients(const AdaconsOptions& options, const GramMatrix& gram,
                         std::vector<double>* momentum,
                         absl::Span<double> coefficients) {
  AGG_DCHECK(gram.num_rows() >= 1);
  AGG_DCHECK(coefficients.size() == static_cast<size_t>(gram.num_rows()));
  if (Attempt(options, gram, momentum, coefficients)) return true;
  MeanCoefficients(coefficients);
  return false;
}

std::vector<double> ResampleMomentum(const std::vector<double>& momentum,
                                     int num_rows) {
  AGG_DCHECK(!momentum.empty());
  const double num_old = static_cast<double>(momentum.size());
  std::vector<double> result(num_rows);
  for (int k = 0; k < num_rows; ++k) {
    const double position =
        std::clamp((k + 0.5) / num_rows * num_old - 0.5, 0.0, num_old - 1.0);
    const size_t below = static_cast<size_t>(position);
    const size_t above = std::min(below + 1, momentum.size() - 1);
    const double share = position - static_cast<double>(below);
    result[k] = momentum[below] * (1.0 - share) + momentum[above] * share;
  }
  return result;
}

RuleResult AdaconsRule::Combine(const RuleInput& input, RuleState* state,
                                absl::Span<double> coefficients) {
  const bool fell_back = !AdaconsCoefficients(input.adacons, input.gram,
                                              &state->values, coefficients);
  RuleResult result = ResultOf(input.gram, coefficients);
  result.fell_back = fell_back;
  // A rescaled combination has the length of gradients again, as the mean has.
  result.of_unit_rows =
      !fell_back && input.adacons.rescale == AdaconsRescale::kNone;
  return result;
}

}  // namespace agg
