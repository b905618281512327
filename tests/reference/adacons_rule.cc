#include "tests/reference/adacons_rule.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/reference/row_statistics.h"

namespace agg {
namespace reference {
namespace {

// Each alpha's place in ascending order; equal ones in row order.
std::vector<size_t> Places(const Vector& alphas) {
  std::vector<size_t> places(alphas.size(), 0);
  for (size_t i = 0; i < alphas.size(); ++i) {
    for (size_t j = 0; j < alphas.size(); ++j) {
      const bool before =
          alphas[j] < alphas[i] || (alphas[j] == alphas[i] && j < i);
      places[i] += before ? 1 : 0;
    }
  }
  return places;
}

}  // namespace

AdaconsStep Adacons(const Rows& rows, Real beta, Real epsilon, Rescale rescale,
                    Vector* momentum) {
  const size_t num_rows = rows.size();
  const Vector mean = Mean(rows);
  Vector alphas(num_rows);
  for (size_t i = 0; i < num_rows; ++i) {
    const Vector row = ToVector(rows[i]);
    alphas[i] = Dot(mean, row) / (Norm(row) + epsilon);
  }
  const std::vector<size_t> places = Places(alphas);
  Vector next(num_rows);
  for (size_t i = 0; i < num_rows; ++i) {
    next[places[i]] = momentum->empty() ? alphas[i]
                                        : beta * (*momentum)[places[i]] +
                                              (1 - beta) * alphas[i];
  }
  Real sum = 0;
  Real absolute = 0;
  for (const Real value : next) {
    sum += value;
    absolute += std::abs(value);
  }
  AdaconsStep step;
  if (!(sum > 1e-6L * absolute)) {
    step.direction = mean;
    step.fell_back = true;
    return step;
  }
  *momentum = next;
  step.direction.assign(mean.size(), 0);
  Real norms = 0;
  for (size_t i = 0; i < num_rows; ++i) {
    const Vector row = ToVector(rows[i]);
    norms += Norm(row);
    step.alphas.push_back(next[places[i]] / sum);
    for (size_t k = 0; k < row.size(); ++k) {
      step.direction[k] += step.alphas[i] * row[k] / (Norm(row) + epsilon);
    }
  }
  Real factor = 1;
  if (rescale == Rescale::kMeanNorm) factor = norms / num_rows;
  if (rescale == Rescale::kMatchMean) {
    factor = Norm(mean) / Norm(step.direction);
  }
  for (Real& value : step.direction) value *= factor;
  return step;
}

}  // namespace reference
}  // namespace agg
