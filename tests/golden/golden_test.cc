// Every golden value of golden.json against server/combine, at full precision.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/combine/adacons.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/combine/round_input.h"
#include "tests/golden/json.h"
#include "tests/reference/vectors.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr double kTolerance = 1e-12;

const Json& Golden() {
  static const Json& golden =
      *new Json(Json::FromFile("tests/golden/golden.json"));
  return golden;
}

// Relative where values are large, absolute near zero; infinities and NaN
// match themselves.
void ExpectClose(double actual, double expected, const std::string& what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << what;
  } else if (std::isinf(expected)) {
    EXPECT_EQ(actual, expected) << what;
  } else {
    EXPECT_NEAR(actual, expected,
                kTolerance * std::fmax(1.0, std::abs(expected)))
        << what;
  }
}

void ExpectClose(const std::vector<double>& actual,
                 const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ExpectClose(actual[i], expected[i], what + "[" + std::to_string(i) + "]");
  }
}

void ExpectGram(const Rows& rows, const Json& entry, const std::string& name) {
  const GramMatrix gram = MakeGram(rows);
  for (int i = 0; i < gram.num_rows(); ++i) {
    for (int j = 0; j < gram.num_rows(); ++j) {
      ExpectClose(gram(i, j), entry["G"][i][j].number(), name + " G");
    }
  }
}

// The result's values that the entry has: all, or the first four and the sum.
void ExpectResult(const Rows& rows, const std::vector<double>& weights,
                  const Json& entry, const std::string& name) {
  const reference::Vector combined = reference::WeightedSum(rows, weights);
  std::vector<double> result(combined.begin(), combined.end());
  if (entry.Has("adasum")) {
    ExpectClose(result, entry["adasum"].numbers(), name + " adasum");
    return;
  }
  double sum = 0.0;
  for (const double value : result) sum += value;
  ExpectClose(sum, entry["adasum_sum"].number(), name + " sum");
  result.resize(4);
  ExpectClose(result, entry["adasum_first4"].numbers(), name + " first4");
}

void ExpectEntry(const Rows& rows, const Json& entry, const std::string& name) {
  ExpectGram(rows, entry, name);
  const CombineOptions options = MakeOptions(Rule::kAdasum);
  const RoundInput input = MakeRound({rows});
  const Decision decision = Decide(options, {}, input);
  ASSERT_EQ(decision.kind, DecisionKind::kApply) << name;
  const std::vector<double>& weights = decision.coefficients[0];
  ExpectClose(weights, entry["adasum_w"].numbers(), name + " w");
  ExpectResult(rows, weights, entry, name);
  ExpectClose(decision.combined_norm * decision.combined_norm,
              entry["adasum_norm_sq"].number(), name + " norm^2");

  const Json& metrics = entry["metrics"];
  ExpectClose(decision.orthogonality, metrics["orthogonality_adasum"].number(),
              name + " orth");
  ExpectClose(decision.gradient_diversity,
              metrics["gradient_diversity"].number(), name + " diversity");
  ExpectClose(decision.sigma2, metrics["var"].number(), name + " var");
  ExpectClose(decision.mu2, metrics["sqr"].number(), name + " sqr");
  CombineState next = decision.next_state;
  const RoundStatistics statistics =
      ComputeStatistics(options, {}, input, decision, &next);
  if (metrics.Has("mean_pairwise_cos")) {
    ExpectClose(statistics.mean_pairwise_cosine,
                metrics["mean_pairwise_cos"].number(), name + " cosine");
  } else {
    EXPECT_TRUE(std::isnan(statistics.mean_pairwise_cosine)) << name;
  }
  // Their limit (infinity) for all-noise gradients is undefined here.
  const double noise_scale = metrics["gns"].number();
  if (std::isinf(noise_scale)) {
    EXPECT_TRUE(std::isnan(statistics.gradient_noise_scale)) << name;
  } else if (metrics["var"].number() > 0.0) {  // above the estimator's floor
    ExpectClose(statistics.gradient_noise_scale, noise_scale, name + " gns");
  }
}

TEST(GoldenTest, HandCases) {
  ASSERT_EQ(Golden()["hand"].members().size(), 12u);
  for (const auto& [name, entry] : Golden()["hand"].members()) {
    ExpectEntry(entry["A"].matrix(), entry, name);
  }
}

TEST(GoldenTest, GeneratorStartsAsDocumented) {
  const Rows rows = LcgRows(1, 1, 4);
  EXPECT_EQ(rows[0],
            (std::vector<double>{-0.52708899974823, -0.26145875453948975,
                                 0.00848400592803955, 0.40976643562316895}));
}

TEST(GoldenTest, GeneratedMatrices) {
  ASSERT_EQ(Golden()["lcg"].members().size(), 6u);
  for (const auto& [name, entry] : Golden()["lcg"].members()) {
    int seed = 0;
    int num_rows = 0;
    int num_elements = 0;
    ASSERT_EQ(std::sscanf(name.c_str(), "seed%d_P%d_n%d", &seed, &num_rows,
                          &num_elements),
              3);
    ExpectEntry(LcgRows(seed, num_rows, num_elements), entry, name);
  }
}

TEST(GoldenTest, BiasedGeneratedMatrices) {
  ASSERT_EQ(Golden()["lcg_biased"].members().size(), 2u);
  for (const auto& [name, entry] : Golden()["lcg_biased"].members()) {
    int seed = 0;
    int num_rows = 0;
    int num_elements = 0;
    double bias = 0.0;
    ASSERT_EQ(std::sscanf(name.c_str(), "seed%d_P%d_n%d_c%lf", &seed, &num_rows,
                          &num_elements, &bias),
              4);
    ExpectEntry(BiasedLcgRows(seed, num_rows, num_elements, bias), entry, name);
  }
}

TEST(GoldenTest, AdaconsSequences) {
  for (const char* name : {"P3_scatter", "P4_scatter"}) {
    CombineState state;
    for (const Json& step : Golden()["adacons"][name].array()) {
      const Decision decision =
          DecideRows(MakeOptions(Rule::kAdacons), state, {step["A"].matrix()});
      state = decision.next_state;
      ExpectClose(decision.coefficients[0], step["c"].numbers(), name);
      ExpectClose(state.adacons[0].sorted_momentum, step["mom"].numbers(),
                  name);
      const reference::Vector combined =
          reference::WeightedSum(step["A"].matrix(), decision.coefficients[0]);
      ExpectClose(std::vector<double>(combined.begin(), combined.end()),
                  step["out"].numbers(), name);
    }
  }
}

// The authors' indexing un-sorts the other way round: another result.
TEST(GoldenTest, AdaconsIsNotTheGatherVariant) {
  const Json& step = Golden()["adacons"]["P3_gather"][0];
  const Decision decision =
      DecideRows(MakeOptions(Rule::kAdacons), {}, {step["A"].matrix()});
  EXPECT_GT(std::abs(decision.coefficients[0][0] - step["c"][0].number()),
            0.01);
}

TEST(GoldenTest, AdaconsFlipFallsBackToTheMean) {
  const Json& flip = Golden()["adacons"]["flip"];
  const Rows rows = Golden()["hand"]["adacons_flip"]["A"].matrix();
  const Decision decision = DecideRows(MakeOptions(Rule::kAdacons), {}, {rows});
  EXPECT_TRUE(decision.adacons_fallback);
  const reference::Vector combined =
      reference::WeightedSum(rows, decision.coefficients[0]);
  ExpectClose(std::vector<double>(combined.begin(), combined.end()),
              flip["mean"].numbers(), "flip");
}

TEST(GoldenTest, AdascaleSequences) {
  const Json& golden = Golden()["adascale_P4_n64_c0.3_seed20..23"];
  for (const char* name : {"fairscale", "paper"}) {
    CombineOptions options = MakeOptions(Rule::kMean);
    options.step_scale.kind = StepScale::kAdascale;
    options.step_scale.averaging =
        std::string(name) == "paper" ? Averaging::kPaper : Averaging::kDebiased;
    CombineState state;
    double tau = 0.0;
    ASSERT_EQ(golden[name].array().size(), 4u);
    for (int t = 0; t < 4; ++t) {
      const Json& step = golden[name][t];
      const Decision decision =
          DecideRows(options, state, {BiasedLcgRows(20 + t, 4, 64, 0.3)});
      state = decision.next_state;
      ExpectClose(decision.sigma2, step["var_hat"].number(), name);
      ExpectClose(decision.mu2, step["sqr_hat"].number(), name);
      ExpectClose(decision.sigma2_mean, step["var"].number(), name);
      ExpectClose(decision.mu2_mean, step["sqr"].number(), name);
      ExpectClose(decision.gain, step["gain"].number(), name);
      ExpectClose(decision.step_factor, step["gain"].number(), name);
      tau += step["gain"].number();
      ExpectClose(decision.tau, tau, name);
    }
  }
}

}  // namespace
}  // namespace agg
