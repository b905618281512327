#include "tests/server/combine/test_rows.h"

#include <cmath>
#include <random>

#include "server/combine/rule_table.h"

namespace agg {
namespace {

class Lcg {
 public:
  explicit Lcg(uint32_t seed) : x_(seed) {}
  double Next() {
    x_ = 1664525u * x_ + 1013904223u;
    return (static_cast<double>(x_ >> 8) - 8388608.0) / 8388608.0;
  }

 private:
  uint32_t x_;
};

}  // namespace

GramMatrix MakeGram(const Rows& rows) {
  const int num_rows = static_cast<int>(rows.size());
  GramMatrix gram(num_rows);
  for (int i = 0; i < num_rows; ++i) {
    for (int j = i; j < num_rows; ++j) {
      double dot = 0.0;
      for (size_t k = 0; k < rows[i].size(); ++k) {
        dot += rows[i][k] * rows[j][k];
      }
      gram.Set(i, j, dot);
    }
  }
  return gram;
}

GramMatrix MakeCompensatedGram(const Rows& rows) {
  const int num_rows = static_cast<int>(rows.size());
  GramMatrix gram(num_rows, /*compensated=*/true);
  for (int i = 0; i < num_rows; ++i) {
    for (int j = i; j < num_rows; ++j) {
      __float128 dot = 0;
      for (size_t k = 0; k < rows[i].size(); ++k) {
        dot += static_cast<__float128>(rows[i][k]) * rows[j][k];
      }
      const double hi = static_cast<double>(dot);
      gram.Set(i, j, hi, static_cast<double>(dot - hi));
    }
  }
  return gram;
}

Rows LcgRows(uint32_t seed, int num_rows, int num_elements) {
  Lcg lcg(seed);
  Rows rows(num_rows, std::vector<double>(num_elements));
  for (std::vector<double>& row : rows) {
    for (double& value : row) value = lcg.Next();
  }
  return rows;
}

Rows BiasedLcgRows(uint32_t seed, int num_rows, int num_elements, double bias) {
  Rows rows = LcgRows(seed, num_rows, num_elements);
  const Rows shared = LcgRows(seed + 1000, 1, num_elements);
  for (std::vector<double>& row : rows) {
    for (int k = 0; k < num_elements; ++k) {
      row[k] = static_cast<float>(row[k] + bias * shared[0][k]);
    }
  }
  return rows;
}

Rows NormalRows(uint64_t seed, int num_rows, int num_elements) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  Rows rows(num_rows, std::vector<double>(num_elements));
  for (std::vector<double>& row : rows) {
    for (double& value : row) value = static_cast<float>(normal(engine));
  }
  return rows;
}

RoundInput MakeRound(const std::vector<Rows>& tensors, int64_t version) {
  RoundInput input;
  input.version = version;
  input.rows.resize(tensors[0].size());
  for (size_t i = 0; i < input.rows.size(); ++i) {
    input.rows[i].rank = static_cast<int32_t>(i);
  }
  for (const Rows& rows : tensors) input.tensors.push_back(MakeGram(rows));
  return input;
}

CombineOptions MakeOptions(const std::string& rule) {
  CombineOptions options;
  options.rule.rule = FindRule(rule);
  options.rule.scope = options.rule.rule->default_scope;
  options.schedule.learning_rate = 1.0;
  return options;
}

Decision DecideRows(const CombineOptions& options, const CombineState& state,
                    const std::vector<Rows>& tensors) {
  RoundInput input = MakeRound(tensors);
  Decision decision = Decide(options, state, input);
  if (decision.kind != DecisionKind::kNeedsCompensated) return decision;
  for (const int t : decision.compensate_tensors) {
    input.tensors[t] = MakeCompensatedGram(tensors[t]);
  }
  return Decide(options, state, input);
}

double BackwardScale(const Rows& rows, const std::vector<double>& weights) {
  double scale = 0.0;
  for (size_t i = 0; i < rows.size(); ++i) {
    scale += std::abs(weights[i]) *
             static_cast<double>(reference::Norm(reference::ToVector(rows[i])));
  }
  return scale;
}

}  // namespace agg
