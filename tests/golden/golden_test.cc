// Every golden value of golden.json against server/combine, at full precision.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/combine/statistics.h"
#include "tests/golden/golden_json.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

constexpr double kTolerance = 1e-12;

const Json& Golden() {
  static const Json& golden = *new Json(ReadGolden("tests/golden/golden.json"));
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
      ExpectClose(gram(i, j), entry.at("G").at(i).at(j).get<double>(),
                  name + " G");
    }
  }
}

// The result's values that the entry has: all, or the first four and the sum.
void ExpectResult(const Rows& rows, const std::vector<double>& weights,
                  const Json& entry, const std::string& name) {
  const reference::Vector combined = reference::WeightedSum(rows, weights);
  std::vector<double> result(combined.begin(), combined.end());
  if (entry.contains("adasum")) {
    ExpectClose(result, entry.at("adasum").get<std::vector<double>>(),
                name + " adasum");
    return;
  }
  double sum = 0.0;
  for (const double value : result) sum += value;
  ExpectClose(sum, entry.at("adasum_sum").get<double>(), name + " sum");
  result.resize(4);
  ExpectClose(result, entry.at("adasum_first4").get<std::vector<double>>(),
              name + " first4");
}

void ExpectEntry(const Rows& rows, const Json& entry, const std::string& name) {
  ExpectGram(rows, entry, name);
  const CombineOptions options = MakeOptions("adasum");
  const RoundInput input = MakeRound({rows});
  const Decision decision = Decide(options, {}, input);
  ASSERT_EQ(decision.kind, DecisionKind::kApply) << name;
  const std::vector<double>& weights = decision.coefficients[0];
  ExpectClose(weights, entry.at("adasum_w").get<std::vector<double>>(),
              name + " w");
  ExpectResult(rows, weights, entry, name);
  ExpectClose(decision.combined_norm * decision.combined_norm,
              entry.at("adasum_norm_sq").get<double>(), name + " norm^2");

  const Json& metrics = entry.at("metrics");
  ExpectClose(decision.orthogonality,
              metrics.at("orthogonality_adasum").get<double>(), name + " orth");
  ExpectClose(decision.gradient_diversity,
              GoldenNumber(metrics.at("gradient_diversity")),
              name + " diversity");
  ExpectClose(decision.sigma2, metrics.at("var").get<double>(), name + " var");
  ExpectClose(decision.mu2, metrics.at("sqr").get<double>(), name + " sqr");
  CombineState next = decision.next_state;
  const RoundStatistics statistics =
      ComputeStatistics(options, {}, input, decision, &next);
  if (metrics.contains("mean_pairwise_cos")) {
    ExpectClose(statistics.mean_pairwise_cosine,
                metrics.at("mean_pairwise_cos").get<double>(),
                name + " cosine");
  } else {
    EXPECT_TRUE(std::isnan(statistics.mean_pairwise_cosine)) << name;
  }
  // Their limit (infinity) for all-noise gradients is undefined here.
  const double noise_scale = GoldenNumber(metrics.at("gns"));
  if (std::isinf(noise_scale)) {
    EXPECT_TRUE(std::isnan(statistics.gradient_noise_scale)) << name;
  } else if (metrics.at("var").get<double>() >
             0.0) {  // above the estimator's floor
    ExpectClose(statistics.gradient_noise_scale, noise_scale, name + " gns");
  }
}

TEST(GoldenTest, HandCases) {
  ASSERT_EQ(Golden().at("hand").size(), 12u);
  for (const auto& [name, entry] : Golden().at("hand").items()) {
    ExpectEntry(entry.at("A").get<Rows>(), entry, name);
  }
}

TEST(GoldenTest, GeneratorStartsAsDocumented) {
  const Rows rows = LcgRows(1, 1, 4);
  EXPECT_EQ(rows[0],
            (std::vector<double>{-0.52708899974823, -0.26145875453948975,
                                 0.00848400592803955, 0.40976643562316895}));
}

TEST(GoldenTest, GeneratedMatrices) {
  ASSERT_EQ(Golden().at("lcg").size(), 6u);
  for (const auto& [name, entry] : Golden().at("lcg").items()) {
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
  ASSERT_EQ(Golden().at("lcg_biased").size(), 2u);
  for (const auto& [name, entry] : Golden().at("lcg_biased").items()) {
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
  for (const char* name :
       {"P3_scatter", "P4_scatter", "P3_gather", "P4_gather"}) {
    CombineOptions options = MakeOptions("adacons");
    if (absl::EndsWith(name, "_gather")) {
      options.rule.adacons.unsort = AdaconsUnsort::kGather;
    }
    CombineState state;
    for (const Json& step : Golden().at("adacons").at(name)) {
      const Decision decision =
          DecideRows(options, state, {step.at("A").get<Rows>()});
      state = decision.next_state;
      ExpectClose(decision.coefficients[0],
                  step.at("c").get<std::vector<double>>(), name);
      ExpectClose(state.rule[0].values,
                  step.at("mom").get<std::vector<double>>(), name);
      const reference::Vector combined = reference::WeightedSum(
          step.at("A").get<Rows>(), decision.coefficients[0]);
      ExpectClose(std::vector<double>(combined.begin(), combined.end()),
                  step.at("out").get<std::vector<double>>(), name);
    }
  }
}

TEST(GoldenTest, AdaconsFlipFallsBackToTheMean) {
  const Json& flip = Golden().at("adacons").at("flip");
  const Rows rows = Golden().at("hand").at("adacons_flip").at("A").get<Rows>();
  const Decision decision = DecideRows(MakeOptions("adacons"), {}, {rows});
  EXPECT_TRUE(decision.adacons_fallback);
  const reference::Vector combined =
      reference::WeightedSum(rows, decision.coefficients[0]);
  ExpectClose(std::vector<double>(combined.begin(), combined.end()),
              flip.at("mean").get<std::vector<double>>(), "flip");
}

TEST(GoldenTest, AdascaleSequences) {
  const Json& golden = Golden().at("adascale_P4_n64_c0.3_seed20..23");
  for (const char* name : {"fairscale", "paper"}) {
    CombineOptions options = MakeOptions("mean");
    options.step_scale.kind = StepScale::kAdascale;
    options.step_scale.averaging =
        std::string(name) == "paper" ? Averaging::kPaper : Averaging::kDebiased;
    CombineState state;
    double tau = 0.0;
    ASSERT_EQ(golden.at(name).size(), 4u);
    for (int t = 0; t < 4; ++t) {
      const Json& step = golden.at(name).at(t);
      const Decision decision =
          DecideRows(options, state, {BiasedLcgRows(20 + t, 4, 64, 0.3)});
      state = decision.next_state;
      ExpectClose(decision.sigma2, step.at("var_hat").get<double>(), name);
      ExpectClose(decision.mu2, step.at("sqr_hat").get<double>(), name);
      ExpectClose(decision.sigma2_mean, step.at("var").get<double>(), name);
      ExpectClose(decision.mu2_mean, step.at("sqr").get<double>(), name);
      ExpectClose(decision.gain, step.at("gain").get<double>(), name);
      ExpectClose(decision.step_factor, step.at("gain").get<double>(), name);
      tau += step.at("gain").get<double>();
      ExpectClose(decision.tau, tau, name);
    }
  }
}

TEST(GoldenJsonTest, NumbersMayBeInfiniteOrUndefined) {
  EXPECT_EQ(GoldenNumber(Json(-2.5e-3)), -2.5e-3);
  EXPECT_EQ(GoldenNumber(Json(3)), 3.0);
  EXPECT_EQ(GoldenNumber(Json("Infinity")), INFINITY);
  EXPECT_EQ(GoldenNumber(Json("-Infinity")), -INFINITY);
  EXPECT_TRUE(std::isnan(GoldenNumber(Json("NaN"))));
  EXPECT_ANY_THROW(GoldenNumber(Json("many")));
  EXPECT_ANY_THROW(GoldenNumber(Json()));
}

TEST(GoldenJsonDeathTest, AFileThatIsNotThereEndsTheTest) {
  EXPECT_DEATH(ReadGolden("no/such/file.json"), "no/such/file.json");
}

}  // namespace
}  // namespace agg
