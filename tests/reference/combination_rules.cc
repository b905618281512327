#include "tests/reference/combination_rules.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

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
                    Unsort unsort, Vector* momentum) {
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
    size_t entry = places[i];
    if (unsort == Unsort::kGather) {
      for (size_t j = 0; j < num_rows; ++j) {
        if (places[j] == i) entry = j;
      }
    }
    step.alphas.push_back(next[entry] / sum);
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

namespace {

using Examples = std::vector<double>;

struct Transcription {
  const char* rule;
  CombineVectors combine;
};

const Transcription kTranscriptions[] = {
    {"sum", [](const Rows& rows, const Examples&) { return Sum(rows); }},
    {"mean", [](const Rows& rows, const Examples&) { return Mean(rows); }},
    {"weighted_mean", WeightedMean},
    {"unit_mean",
     [](const Rows& rows, const Examples&) { return UnitMean(rows); }},
    {"adasum",
     [](const Rows& rows, const Examples&) { return AdasumTree(rows); }},
    {"adasum_counted",
     [](const Rows& rows, const Examples&) { return AdasumCountedTree(rows); }},
    {"adacons",
     [](const Rows& rows, const Examples&) {
       Vector momentum;
       return Adacons(rows, 0.99L, 1e-8L, Rescale::kNone, Unsort::kScatter,
                      &momentum)
           .direction;
     }},
    {"krum",
     [](const Rows& rows, const Examples&) { return MultiKrum(rows, 1, 1); }},
    {"multi_krum",
     [](const Rows& rows, const Examples&) { return MultiKrum(rows, 1, 0); }},
    {"geometric_median",
     [](const Rows& rows, const Examples&) {
       return GeometricMedian(rows, 64, 1e-6L);
     }},
    // Of a rule that nobody has asked.
    {"external", [](const Rows& rows, const Examples&) { return Mean(rows); }},
};

}  // namespace

CombineVectors FindTranscription(const std::string& rule) {
  for (const Transcription& transcription : kTranscriptions) {
    if (rule == transcription.rule) return transcription.combine;
  }
  return nullptr;
}

}  // namespace reference
}  // namespace agg
