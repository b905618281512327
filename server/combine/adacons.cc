// The steps have the names and the order of server/combine/README.md 4:
// alphas, sort, momentum, normalise with a guard, rescale.
#include "server/combine/adacons.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <type_traits>

#include "server/base/dcheck.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/means.h"

namespace agg {
namespace {

// Below this share of sum|alpha'| a sum of alpha' has no reliable sign.
constexpr double kMinSumShare = 1e-6;

template <typename Real>
Real Absolute(Real x) {
  return x < 0 ? -x : x;
}

// Of a number that double can hold, too. From double's root one step of
// Newton's method makes twice the digits.
template <typename Real>
Real SquareRoot(Real x) {
  const Real root = std::sqrt(static_cast<double>(x));
  if constexpr (std::is_same_v<Real, double>) return root;
  return root > 0 ? (root + x / root) / 2 : root;
}

// How many times the terms' sum of sizes exceeds the sum itself; at least 1.
template <typename Real>
double Cancellation(Real sizes, Real sum) {
  if (!(sizes > 0)) return 1.0;
  if (sum == 0) return std::numeric_limits<double>::infinity();
  return std::max(static_cast<double>(sizes / Absolute(sum)), 1.0);
}

// What the rows say, in row order.
template <typename Real>
struct Agreement {
  std::vector<Real> norms;   // n_i
  std::vector<Real> alphas;  // before any momentum
  Real sizes = 0;  // sum of the sizes of the terms that the alphas are sums of
};

// One pass over the upper triangle; every sum takes its terms in the order of
// the columns, as if the matrix were dense.
template <typename Real>
Agreement<Real> Agree(const GramMatrix& gram, double epsilon) {
  const int num_rows = gram.num_rows();
  Agreement<Real> found;
  found.norms.resize(num_rows);
  found.alphas.assign(num_rows, 0);
  std::vector<Real> sizes(num_rows, 0);
  for (int i = 0; i < num_rows; ++i) {
    for (int j = i; j < num_rows; ++j) {
      const Real entry = Entry<Real>(gram, i, j);
      found.alphas[i] += entry;
      sizes[i] += Absolute(entry);
      if (j == i) continue;
      found.alphas[j] += entry;
      sizes[j] += Absolute(entry);
    }
  }
  for (int i = 0; i < num_rows; ++i) {
    found.norms[i] = SquareRoot(Entry<Real>(gram, i, i)) + epsilon;
    found.alphas[i] = found.alphas[i] / found.norms[i] / num_rows;
    found.sizes += sizes[i] / found.norms[i] / num_rows;
  }
  return found;
}

// The rows, by alpha ascending; equal ones in their order.
template <typename Real>
std::vector<int> Order(const std::vector<Real>& alphas) {
  std::vector<int> order(alphas.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&alphas](int i, int j) {
    return alphas[i] != alphas[j] ? alphas[i] < alphas[j] : i < j;
  });
  return order;
}

// The momentum after this round.
template <typename Real>
std::vector<Real> NextMomentum(double beta, const std::vector<double>& old,
                               const std::vector<Real>& alphas,
                               const std::vector<int>& order) {
  const int num_rows = static_cast<int>(alphas.size());
  std::vector<Real> momentum(num_rows);
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

// The alpha of each row out of the momentum.
template <typename Real>
std::vector<Real> Unsort(AdaconsUnsort unsort,
                         const std::vector<Real>& momentum,
                         const std::vector<int>& order) {
  std::vector<Real> alphas(momentum.size());
  for (size_t k = 0; k < order.size(); ++k) {
    if (unsort == AdaconsUnsort::kScatter) {
      alphas[order[k]] = momentum[k];
    } else {
      alphas[k] = momentum[order[k]];
    }
  }
  return alphas;
}

// Divides by the sum, which *sum gets; false when the guard fires.
template <typename Real>
bool Normalise(std::vector<Real>* alphas, Real* sum) {
  *sum = 0;
  Real absolute_sum = 0;
  for (const Real alpha : *alphas) {
    *sum += alpha;
    absolute_sum += Absolute(alpha);
  }
  if (!std::isfinite(static_cast<double>(absolute_sum)) ||
      !(*sum > kMinSumShare * absolute_sum)) {
    return false;
  }
  for (Real& alpha : *alphas) alpha /= *sum;
  return true;
}

// w^T G w, and into *sizes the sum of its terms' sizes.
template <typename Real>
Real SquaredNorm(const GramMatrix& gram, const std::vector<Real>& w,
                 Real* sizes) {
  Real sum = 0;
  *sizes = 0;
  for (int i = 0; i < gram.num_rows(); ++i) {
    for (int j = 0; j < gram.num_rows(); ++j) {
      const Real term = w[i] * Entry<Real>(gram, i, j) * w[j];
      sum += term;
      *sizes += Absolute(term);
    }
  }
  return sum;
}

// The factor of server/combine/README.md 4.3; not finite for match_mean on a
// combination of length 0. *kappa grows to what its sums lose.
template <typename Real>
Real RescaleFactor(AdaconsRescale rescale, const GramMatrix& gram,
                   const std::vector<Real>& weights, double* kappa) {
  const int num_rows = gram.num_rows();
  if (rescale == AdaconsRescale::kNone) return 1;
  if (rescale == AdaconsRescale::kMeanNorm) {
    Real sum = 0;
    for (int i = 0; i < num_rows; ++i) {
      sum += SquareRoot(Entry<Real>(gram, i, i));
    }
    return sum / num_rows;
  }
  Real sizes = 0;
  const Real mean_squared = SquaredNorm<Real>(
      gram, std::vector<Real>(num_rows, Real{1} / num_rows), &sizes);
  *kappa = std::max(*kappa, Cancellation(sizes, mean_squared));
  const Real squared = SquaredNorm(gram, weights, &sizes);
  *kappa = std::max(*kappa, Cancellation(sizes, squared));
  return SquareRoot(mean_squared / squared);
}

// Everything before the guard. The momentum is written last: a coefficient that
// is not finite must not reach it, or it would stay there for ever.
template <typename Real>
AdaconsResult Attempt(const AdaconsOptions& options, const GramMatrix& gram,
                      std::vector<double>* momentum,
                      absl::Span<double> coefficients) {
  AdaconsResult result;
  result.fell_back = true;
  const Agreement<Real> found = Agree<Real>(gram, options.epsilon);
  for (const Real alpha : found.alphas) {
    if (!std::isfinite(static_cast<double>(alpha))) return result;
  }
  const std::vector<int> order = Order(found.alphas);
  const std::vector<Real> next =
      NextMomentum(options.beta, *momentum, found.alphas, order);
  std::vector<Real> weights = Unsort(options.unsort, next, order);
  Real sum = 0;
  const bool normal = Normalise(&weights, &sum);
  // Of older rounds the momentum has lost nothing that this one could give.
  const Real share = momentum->empty() ? 1.0 : 1.0 - options.beta;
  result.kappa = Cancellation<Real>(share * found.sizes, sum);
  if (!normal) return result;
  for (size_t i = 0; i < weights.size(); ++i) weights[i] /= found.norms[i];
  const Real factor =
      RescaleFactor(options.rescale, gram, weights, &result.kappa);
  if (!std::isfinite(static_cast<double>(factor))) return result;
  for (size_t i = 0; i < weights.size(); ++i) {
    coefficients[i] = static_cast<double>(weights[i] * factor);
    if (!std::isfinite(coefficients[i])) return result;
  }
  momentum->assign(next.begin(), next.end());
  result.fell_back = false;
  return result;
}

}  // namespace

AdaconsResult AdaconsCoefficients(const AdaconsOptions& options,
                                  const GramMatrix& gram,
                                  std::vector<double>* momentum,
                                  absl::Span<double> coefficients) {
  AGG_DCHECK(gram.num_rows() >= 1);
  AGG_DCHECK(coefficients.size() == static_cast<size_t>(gram.num_rows()));
  const AdaconsResult result =
      gram.compensated()
          ? Attempt<__float128>(options, gram, momentum, coefficients)
          : Attempt<double>(options, gram, momentum, coefficients);
  if (result.fell_back) MeanCoefficients(coefficients);
  return result;
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
  const AdaconsResult adacons = AdaconsCoefficients(
      input.adacons, input.gram, &state->values, coefficients);
  RuleResult result = ResultOf(input.gram, coefficients);
  result.kappa = adacons.kappa;
  result.fell_back = adacons.fell_back;
  // A rescaled combination has the length of gradients again, as the mean has.
  result.of_unit_rows =
      !adacons.fell_back && input.adacons.rescale == AdaconsRescale::kNone;
  return result;
}

}  // namespace agg
