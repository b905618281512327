#include "tests/reference/robust_rules.h"

#include <algorithm>
#include <numeric>

#include "tests/reference/row_statistics.h"

namespace agg {
namespace reference {
namespace {

int TakenByzantine(const Rows& rows, int byzantine) {
  while (byzantine > 0 && static_cast<int>(rows.size()) < 2 * byzantine + 3) {
    --byzantine;
  }
  return byzantine;
}

Real MedianNorm(const Rows& rows) {
  Vector norms;
  for (const std::vector<double>& row : rows) {
    norms.push_back(Norm(ToVector(row)));
  }
  std::sort(norms.begin(), norms.end());
  const size_t half = norms.size() / 2;
  return norms.size() % 2 == 1 ? norms[half]
                               : (norms[half - 1] + norms[half]) / 2;
}

// Each row weighed by the inverse of its distance to the farthest of the
// nearest rows that are more than half of all, itself among them.
Vector MajorityPoint(const Rows& rows, Real least) {
  Vector point(rows[0].size(), 0);
  Real sum = 0;
  for (const std::vector<double>& row : rows) {
    Vector distances;
    for (const std::vector<double>& other : rows) {
      distances.push_back(Distance(ToVector(row), ToVector(other)));
    }
    std::sort(distances.begin(), distances.end());
    const Real radius = std::max(least, distances[rows.size() / 2]);
    if (radius == 0) return ToVector(row);  // it is most of the rows
    sum += 1 / radius;
    for (size_t e = 0; e < point.size(); ++e) point[e] += row[e] / radius;
  }
  for (Real& value : point) value /= sum;
  return point;
}

}  // namespace

Vector KrumScores(const Rows& rows, int byzantine) {
  const int num_rows = static_cast<int>(rows.size());
  const int others = num_rows - 1;
  const int wanted = num_rows - TakenByzantine(rows, byzantine) - 2;
  Vector scores;
  for (int i = 0; i < num_rows; ++i) {
    Vector squares;
    for (int j = 0; j < num_rows; ++j) {
      if (j == i) continue;
      const Real distance = Distance(ToVector(rows[i]), ToVector(rows[j]));
      squares.push_back(distance * distance);
    }
    std::sort(squares.begin(), squares.end());
    squares.resize(std::min(std::max(wanted, 1), others));
    scores.push_back(std::accumulate(squares.begin(), squares.end(), Real{0}));
  }
  return scores;
}

Vector MultiKrum(const Rows& rows, int byzantine, int selected) {
  const Vector scores = KrumScores(rows, byzantine);
  const size_t most = rows.size() - TakenByzantine(rows, byzantine);
  const size_t number = selected == 0 ? most : std::min<size_t>(selected, most);
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return scores[i] < scores[j]; });
  Rows best;
  for (size_t k = 0; k < number; ++k) best.push_back(rows[order[k]]);
  return Mean(best);
}

Vector GeometricMedian(const Rows& rows, int iterations, Real epsilon) {
  const Real least = epsilon * MedianNorm(rows);
  Vector point = MajorityPoint(rows, least);
  for (int k = 0; k < iterations; ++k) {
    Vector next(point.size(), 0);
    Real sum = 0;
    for (const std::vector<double>& row : rows) {
      const Vector vector = ToVector(row);
      const Real distance = std::max(least, Distance(point, vector));
      if (distance == 0) return point;  // all rows are zero
      sum += 1 / distance;
      for (size_t e = 0; e < next.size(); ++e) next[e] += vector[e] / distance;
    }
    for (Real& value : next) value /= sum;
    point = next;
  }
  return point;
}

Real SumOfDistances(const Rows& rows, const Vector& point) {
  Real sum = 0;
  for (const std::vector<double>& row : rows) {
    sum += Distance(point, ToVector(row));
  }
  return sum;
}

}  // namespace reference
}  // namespace agg
