// Holds the rules to what the papers' own programs computed
// (reference_programs.json, README.md): Horovod's Adasum, AdaCons' Main.py,
// fairscale's AdaScale, AdaptDL's gradient noise scale.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/combine/decision.h"
#include "server/combine/options.h"
#include "tests/golden/golden_json.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

// float32's distance from 1 to the next number; the programs compute in it.
constexpr double kFloatEpsilon = 0x1p-23;

const Json& Recorded() {
  static const Json& recorded =
      *new Json(ReadGolden("tests/golden/reference_programs.json"));
  return recorded;
}

std::vector<int> Elements(const Json& entry) {
  return entry.at("elements").get<std::vector<int>>();
}

int TotalElements(const Json& entry) {
  int total = 0;
  for (const int count : Elements(entry)) total += count;
  return total;
}

// The columns [begin, end) of the rows.
Rows Columns(const Rows& rows, int begin, int end) {
  Rows part;
  for (const std::vector<double>& row : rows) {
    part.emplace_back(row.begin() + begin, row.begin() + end);
  }
  return part;
}

// A tensor for each number of elements.
std::vector<Rows> Tensors(const Json& entry, const Rows& rows) {
  std::vector<Rows> tensors;
  int begin = 0;
  for (const int count : Elements(entry)) {
    tensors.push_back(Columns(rows, begin, begin + count));
    begin += count;
  }
  return tensors;
}

Rows HorovodRows(const Json& entry) {
  const int num_rows = entry.at("P").get<int>();
  const int seed = entry.at("seed").get<int>();
  if (!entry.contains("noise")) {
    return BiasedLcgRows(seed, num_rows, TotalElements(entry),
                         entry.at("bias").get<double>());
  }
  const double noise = entry.at("noise").get<double>();
  Rows rows = LcgRows(seed, num_rows, TotalElements(entry));
  for (size_t i = 1; i < rows.size(); i += 2) {
    for (size_t k = 0; k < rows[i].size(); ++k) {
      rows[i][k] = static_cast<float>(noise * rows[i][k] - rows[i - 1][k]);
    }
  }
  return rows;
}

// Horovod rounds each level of the tree to the rows' type, the rule never.
TEST(ReferenceProgramsTest, HorovodsAdasum) {
  ASSERT_GE(Recorded().at("horovod").size(), 18u);
  for (const Json& entry : Recorded().at("horovod")) {
    const std::vector<Rows> tensors = Tensors(entry, HorovodRows(entry));
    CombineOptions options = MakeOptions("adasum");
    // Opposite rows: without the compensated matrix 1e-12 is lost at a noise of
    // 1e-4 (kappa about 1e8), which Horovod's own tree keeps.
    if (entry.contains("noise")) options.rule.kappa_limit = 1.0;
    const Decision decision = DecideRows(options, {}, tensors);
    const std::vector<double> expected =
        entry.at("combined").get<std::vector<double>>();
    const double levels = std::log2(entry.at("P").get<double>());
    const double tolerance =
        entry.at("type") == "float32" ? levels * kFloatEpsilon / 2 : 1e-14;
    size_t begin = 0;
    for (size_t t = 0; t < tensors.size(); ++t) {
      const size_t end = begin + tensors[t][0].size();
      const reference::Vector theirs(expected.begin() + begin,
                                     expected.begin() + end);
      const std::vector<double>& weights = decision.coefficients[t];
      EXPECT_LE(static_cast<double>(reference::Distance(
                    reference::WeightedSum(tensors[t], weights), theirs)),
                tolerance * BackwardScale(tensors[t], weights))
          << entry.at("type") << ", P = " << entry.at("P") << ", seed "
          << entry.at("seed") << ", tensor " << t;
      begin = end;
    }
  }
}

// Their program sums inner products in float32.
TEST(ReferenceProgramsTest, AdaconsAsItsAuthorsProgramHasIt) {
  ASSERT_GE(Recorded().at("adacons").size(), 6u);
  for (const Json& entry : Recorded().at("adacons")) {
    CombineOptions options = MakeOptions("adacons");
    options.rule.adacons.unsort = AdaconsUnsort::kGather;
    options.rule.adacons.beta = entry.at("beta").get<double>();
    CombineState state;
    int seed = entry.at("seed").get<int>();
    for (const Json& step : entry.at("values")) {
      const Rows rows =
          BiasedLcgRows(seed++, entry.at("P").get<int>(), TotalElements(entry),
                        entry.at("bias").get<double>());
      const Decision decision =
          DecideRows(options, state, Tensors(entry, rows));
      state = decision.next_state;
      const std::vector<double> momentum =
          step.at("momentum").get<std::vector<double>>();
      ASSERT_EQ(state.rule[0].values.size(), momentum.size());
      for (size_t k = 0; k < momentum.size(); ++k) {
        EXPECT_NEAR(state.rule[0].values[k], momentum[k],
                    8 * kFloatEpsilon * momentum.back())
            << "P = " << entry.at("P") << ", beta " << entry.at("beta");
      }
      const std::vector<double> combined =
          step.at("combined").get<std::vector<double>>();
      EXPECT_LE(
          static_cast<double>(reference::Distance(
              reference::WeightedSum(rows, decision.coefficients[0]),
              reference::ToVector(combined))),
          8 * kFloatEpsilon * BackwardScale(rows, decision.coefficients[0]))
          << "P = " << entry.at("P") << ", beta " << entry.at("beta");
    }
  }
}

// A round of rows with their micro-gradients' squares, of one segment.
RoundInput RoundOf(const Rows& micro_rows, int accumulation) {
  Rows rows;
  std::vector<double> squares;
  for (size_t i = 0; i < micro_rows.size(); i += accumulation) {
    std::vector<double> row(micro_rows[i].size(), 0.0);
    squares.push_back(0.0);
    for (int micro = 0; micro < accumulation; ++micro) {
      for (size_t k = 0; k < row.size(); ++k) {
        const double value = micro_rows[i + micro][k];
        row[k] += value / accumulation;
        squares.back() += value * value;
      }
    }
    rows.push_back(row);
  }
  RoundInput round = MakeRound({rows});
  if (accumulation == 1) return round;
  for (size_t i = 0; i < rows.size(); ++i) {
    round.rows[i].accumulation = accumulation;
    round.rows[i].micro_norm_squared_sum = squares[i];
  }
  return round;
}

Rows MicroRows(const Json& entry, int step) {
  return BiasedLcgRows(
      entry.at("seed").get<int>() + step,
      entry.at("P").get<int>() * entry.at("accumulation").get<int>(),
      TotalElements(entry), entry.at("bias").get<double>());
}

CombineOptions AdascaleOptions(const StepScaleOptions& step_scale) {
  CombineOptions options = MakeOptions("mean");
  options.step_scale = step_scale;
  return options;
}

// What a round's gain may differ by: both programs keep squares in float32, and
// a variance is a difference of them.
double Tolerance(const Rows& micro_rows) {
  double squares = 0.0;
  for (const std::vector<double>& row : micro_rows) {
    squares +=
        static_cast<double>(reference::NormSquared(reference::ToVector(row)));
  }
  return 8 * kFloatEpsilon * squares;
}

// Each group of parameters has averages and a gain of its own there: the
// server's, of that group's tensors alone.
void ExpectGroups(const Json& entry, const StepScaleOptions& step_scale,
                  const std::string& gains) {
  const CombineOptions options = AdascaleOptions(step_scale);
  int begin = 0;
  for (size_t group = 0; group < Elements(entry).size(); ++group) {
    const int end = begin + Elements(entry)[group];
    CombineState state;
    for (size_t step = 0; step < entry.at("values").size(); ++step) {
      const std::string what = entry.at("name").get<std::string>() +
                               ", group " + std::to_string(group) + ", step " +
                               std::to_string(step);
      const Rows micro =
          Columns(MicroRows(entry, static_cast<int>(step)), begin, end);
      const Decision decision = Decide(
          options, state, RoundOf(micro, entry.at("accumulation").get<int>()));
      state = decision.next_state;
      const Json& theirs = entry.at("values").at(step);
      const double tolerance = Tolerance(micro);
      // AdaptDL's averages are raw, and have their floors where they are used.
      const double variance = theirs.at("variance").at(group).get<double>();
      EXPECT_NEAR(decision.sigma2_mean, std::fmax(variance, 1e-6), tolerance)
          << what;
      const double squared = theirs.at("mean_squared").at(group).get<double>();
      EXPECT_NEAR(decision.mu2_mean, std::fmax(squared, 0.0), tolerance)
          << what;
      const double gain = theirs.at(gains).at(group).get<double>();
      EXPECT_NEAR(decision.gain, gain, 1e-5 * gain) << what;
    }
    begin = end;
  }
}

// Whether a group's estimate of the squared mean was below 0 in this step: its
// floor acts there for one group, here for the sum of all.
bool FloorActs(const Json& entry, int step) {
  for (const Rows& micro : Tensors(entry, MicroRows(entry, step))) {
    const Decision decision =
        Decide(MakeOptions("mean"), {},
               RoundOf(micro, entry.at("accumulation").get<int>()));
    if (decision.mu2 < 0.0) return true;
  }
  return false;
}

// The gain that both programs count progress by is of all groups: the server's,
// up to the first step in which a group's floor acts. Returns the steps
// compared.
int ExpectTotal(const Json& entry, const StepScaleOptions& step_scale) {
  const CombineOptions options = AdascaleOptions(step_scale);
  CombineState state;
  const int num_steps = static_cast<int>(entry.at("values").size());
  for (int step = 0; step < num_steps; ++step) {
    if (FloorActs(entry, step)) return step;
    const Decision decision = Decide(
        options, state,
        RoundOf(MicroRows(entry, step), entry.at("accumulation").get<int>()));
    state = decision.next_state;
    const double gain = entry.at("values").at(step).at("gain").get<double>();
    EXPECT_NEAR(decision.gain, gain, 1e-5 * gain)
        << entry.at("name") << ", step " << step;
  }
  return num_steps;
}

// With gain_scope "per_group" both the groups' gains and that of all are the
// programs' own in every step. Not with accumulation: the sums of squares that
// they have are each group's, and a worker's is of all tensors. Returns the
// steps in which a group's floor acts.
int ExpectPerGroup(const Json& entry, StepScaleOptions step_scale,
                   const std::string& gains) {
  EXPECT_EQ(entry.at("accumulation").get<int>(), 1);
  step_scale.gain_scope = GainScope::kPerGroup;
  std::vector<int32_t> places;
  for (size_t group = 0; group < Elements(entry).size(); ++group) {
    step_scale.groups.push_back(std::to_string(group));
    places.push_back(static_cast<int32_t>(group));
  }
  const CombineOptions options = AdascaleOptions(step_scale);
  CombineState state;
  double tau = 0.0;
  int num_floors = 0;
  for (size_t step = 0; step < entry.at("values").size(); ++step) {
    const int number = static_cast<int>(step);
    RoundInput round = MakeRound(Tensors(entry, MicroRows(entry, number)));
    round.group_of_tensor = places;
    const Decision decision = Decide(options, state, round);
    state = decision.next_state;
    const Json& theirs = entry.at("values").at(step);
    const std::string what =
        entry.at("name").get<std::string>() + ", step " + std::to_string(step);
    const double gain = theirs.at("gain").get<double>();
    EXPECT_NEAR(decision.gain, gain, 1e-5 * gain) << what;
    tau += gain;
    EXPECT_NEAR(decision.tau, tau, 1e-5 * tau) << what;
    EXPECT_EQ(decision.group_gains.size(), places.size());
    for (size_t group = 0; group < decision.group_gains.size(); ++group) {
      const double own = theirs.at(gains).at(group).get<double>();
      EXPECT_NEAR(decision.group_gains[group], own, 1e-5 * own) << what;
    }
    num_floors += FloorActs(entry, number) ? 1 : 0;
  }
  return num_floors;
}

double Count(const Json& entry) {
  return entry.at("P").get<double>() * entry.at("accumulation").get<double>();
}

TEST(ReferenceProgramsTest, FairscalesAdascale) {
  ASSERT_GE(Recorded().at("fairscale").size(), 5u);
  int num_totals = 0;
  int num_floors = 0;
  for (const Json& entry : Recorded().at("fairscale")) {
    StepScaleOptions options;
    options.kind = StepScale::kAdascale;
    options.averaging = entry.at("averaging") == "paper" ? Averaging::kPaper
                                                         : Averaging::kDebiased;
    EXPECT_DOUBLE_EQ(entry.at("default_smoothing").get<double>(),
                     std::fmax(1.0 - Count(entry) / 1000, 0.0));
    if (!entry.at("smoothing").is_null()) {
      options.smoothing = entry.at("smoothing").get<double>();
    }
    ExpectGroups(entry, options, "group_gains");
    num_totals += ExpectTotal(entry, options);
    if (entry.at("accumulation").get<int>() > 1) continue;
    num_floors += ExpectPerGroup(entry, options, "group_gains");
  }
  EXPECT_GE(num_totals, 12);
  EXPECT_GE(num_floors, 1);
}

TEST(ReferenceProgramsTest, AdaptdlsGradientNoiseScale) {
  int num_cases = 0;
  int num_totals = 0;
  for (const Json& entry : Recorded().at("adaptdl")) {
    if (Count(entry) < 2) continue;  // its estimator takes the last round, too
    StepScaleOptions options;
    options.kind = StepScale::kAdascale;
    options.clip_before_average = false;
    options.smoothing = 0.999;
    options.smoothing_per = SmoothingPer::kBaselineBatch;
    ExpectGroups(entry, options, "adascale_factors");
    num_totals += ExpectTotal(entry, options);
    if (entry.at("accumulation").get<int>() == 1) {
      ExpectPerGroup(entry, options, "adascale_factors");
    }
    for (const Json& step : entry.at("values")) {
      for (size_t group = 0; group < Elements(entry).size(); ++group) {
        const double gain = step.at("adascale_factors").at(group).get<double>();
        EXPECT_NEAR(step.at("adamscale_factors").at(group).get<double>(),
                    std::sqrt(gain), 1e-12);
      }
    }
    ++num_cases;
  }
  EXPECT_GE(num_cases, 3);
  EXPECT_GE(num_totals, 4);
}

}  // namespace
}  // namespace agg
