// Sums go from the smallest distance up, so that scores do not depend on the
// order of the rows.
#include "server/combine/krum.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "server/base/dcheck.h"
#include "server/combine/combination_rule.h"

namespace agg {
namespace {

template <typename Real>
struct Score {
  Real sum = 0;
  Real size = 0;  // of the terms that `sum` is a difference of
};

// A row's squared distances to the others, and the sizes of their terms.
template <typename Real>
std::vector<Score<Real>> Distances(const GramMatrix& gram, int i) {
  std::vector<Score<Real>> distances;
  const Real own = Entry<Real>(gram, i, i);
  for (int j = 0; j < gram.num_rows(); ++j) {
    if (j == i) continue;
    const Real other = Entry<Real>(gram, j, j);
    const Real dot = Entry<Real>(gram, i, j);
    const Real squared = (own - dot) + (other - dot);
    const Real size = own + other + 2 * (dot < 0 ? -dot : dot);
    distances.push_back(
        {squared < 0 ? Real{0} : squared, squared == 0 ? Real{0} : size});
  }
  return distances;
}

template <typename Real>
Score<Real> ScoreOf(const GramMatrix& gram, int i, int num_neighbours) {
  std::vector<Score<Real>> nearest = Distances<Real>(gram, i);
  std::sort(nearest.begin(), nearest.end(),
            [](const Score<Real>& a, const Score<Real>& b) {
              return a.sum != b.sum ? a.sum < b.sum : a.size < b.size;
            });
  Score<Real> score;
  for (int k = 0; k < num_neighbours; ++k) {
    score.sum += nearest[k].sum;
    score.size += nearest[k].size;
  }
  return score;
}

template <typename Real>
double Kappa(const std::vector<Score<Real>>& scores, Real limit) {
  double kappa = 1.0;
  for (const Score<Real>& score : scores) {
    if (!(score.size > 0)) continue;
    const Real sum = std::max(score.sum, limit);
    kappa = std::max(kappa, sum > 0 ? static_cast<double>(score.size / sum)
                                    : std::numeric_limits<double>::infinity());
  }
  return kappa;
}

// How many rows are used, of `num_rows` with f byzantine ones.
int NumSelected(int num_rows, int byzantine_rows, int selected) {
  const int most = num_rows - byzantine_rows;
  return selected == 0 ? most : std::min(selected, most);
}

template <typename Real>
KrumScores Compute(const GramMatrix& gram, int byzantine_workers,
                   int selected) {
  const int num_rows = gram.num_rows();
  KrumScores result;
  result.byzantine_rows =
      std::min(byzantine_workers, std::max(MostByzantineWorkers(num_rows), 0));
  const int num_neighbours =
      std::min(std::max(num_rows - result.byzantine_rows - 2, 1), num_rows - 1);
  std::vector<Score<Real>> scores;
  for (int i = 0; i < num_rows; ++i) {
    scores.push_back(ScoreOf<Real>(gram, i, num_neighbours));
  }
  result.order.resize(num_rows);
  std::iota(result.order.begin(), result.order.end(), 0);
  std::sort(result.order.begin(), result.order.end(), [&](int i, int j) {
    return scores[i].sum != scores[j].sum ? scores[i].sum < scores[j].sum
                                          : i < j;
  });
  const int last = NumSelected(num_rows, result.byzantine_rows, selected) - 1;
  result.kappa = Kappa(scores, scores[result.order[last]].sum);
  return result;
}

// 1/m for each of the m best rows.
RuleResult Average(const RuleInput& input, int selected,
                   absl::Span<double> coefficients) {
  const int byzantine_workers = input.krum.byzantine_workers;
  const KrumScores scores =
      ComputeKrumScores(input.gram, byzantine_workers, selected);
  const int num_selected =
      NumSelected(input.gram.num_rows(), scores.byzantine_rows, selected);
  std::fill(coefficients.begin(), coefficients.end(), 0.0);
  for (int k = 0; k < num_selected; ++k) {
    coefficients[scores.order[k]] = 1.0 / num_selected;
  }
  RuleResult result = ResultOf(input.gram, coefficients);
  result.kappa = scores.kappa;
  result.short_of_rows = scores.byzantine_rows < byzantine_workers;
  return result;
}

}  // namespace

KrumScores ComputeKrumScores(const GramMatrix& gram, int byzantine_workers,
                             int selected) {
  AGG_DCHECK(gram.num_rows() >= 1);
  AGG_DCHECK(byzantine_workers >= 0 && selected >= 0);
  return gram.compensated()
             ? Compute<__float128>(gram, byzantine_workers, selected)
             : Compute<double>(gram, byzantine_workers, selected);
}

RuleResult KrumRule::Combine(const RuleInput& input, RuleState* /*state*/,
                             absl::Span<double> coefficients) {
  return Average(input, 1, coefficients);
}

RuleResult MultiKrumRule::Combine(const RuleInput& input, RuleState* /*state*/,
                                  absl::Span<double> coefficients) {
  return Average(input, input.krum.selected, coefficients);
}

}  // namespace agg
