// The agg_combine binary, end to end, on .npy files.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/golden/golden_json.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"
#include "tests/server/tools/run_agg_combine.h"
#include "tests/worker_client/npz/malformed_npy.h"
#include "tests/worker_client/npz/npy_files.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void ExpectClose(const std::vector<double>& actual,
                 const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i],
                tolerance * std::fmax(1.0, std::abs(expected[i])))
        << i;
  }
}

const Json& Golden() {
  static const Json& golden = *new Json(ReadGolden("tests/golden/golden.json"));
  return golden;
}

TEST(AggCombineTest, HandCasesInEveryType) {
  const std::string output = ::testing::TempDir() + "/out.npy";
  for (const auto& [name, entry] : Golden().at("hand").items()) {
    for (const char* type : {"<f2", "<f4", "<f8"}) {
      const Rows rows = entry.at("A").get<Rows>();
      const RunResult result =
          RunSteps({"--rule=adasum", "--output=" + output}, {rows}, type);
      const Json& line = result.lines[0];
      SCOPED_TRACE(name);
      ExpectClose(line.at("coefficients").get<std::vector<double>>(),
                  entry.at("adasum_w").get<std::vector<double>>(), 1e-12);
      EXPECT_EQ(line.at("gram").get<Rows>(), entry.at("G").get<Rows>());
      const Json& metrics = entry.at("metrics");
      EXPECT_NEAR(line.at("orthogonality").get<double>(),
                  metrics.at("orthogonality_adasum").get<double>(), 1e-12);
      EXPECT_NEAR(line.at("sigma2").get<double>(),
                  metrics.at("var").get<double>(), 1e-12);
      EXPECT_NEAR(line.at("mu2").get<double>(), metrics.at("sqr").get<double>(),
                  1e-12);
      EXPECT_NEAR(line.at("norm").get<double>(),
                  std::sqrt(entry.at("adasum_norm_sq").get<double>()), 1e-12);
      if (std::isinf(GoldenNumber(metrics.at("gradient_diversity")))) {
        EXPECT_TRUE(line.at("gradient_diversity").is_null());
      } else {
        EXPECT_NEAR(line.at("gradient_diversity").get<double>(),
                    GoldenNumber(metrics.at("gradient_diversity")), 1e-12);
      }
      if (metrics.contains("mean_pairwise_cos")) {
        EXPECT_NEAR(line.at("mean_pairwise_cosine").get<double>(),
                    metrics.at("mean_pairwise_cos").get<double>(), 1e-12);
      } else {
        EXPECT_TRUE(line.at("mean_pairwise_cosine").is_null());
      }
      EXPECT_TRUE(line.at("excluded").empty());
      EXPECT_TRUE(line.at("skipped").is_null());
      const std::string bytes = ReadTestFile(output);
      const std::string expected_prefix = NpyPrefix(
          1, NpyHeader("<f8", absl::StrCat("(", rows[0].size(), ",)")));
      ASSERT_EQ(bytes.substr(0, expected_prefix.size()), expected_prefix);
      std::vector<double> combined(rows[0].size());
      ASSERT_EQ(bytes.size(), expected_prefix.size() + 8 * combined.size());
      std::memcpy(combined.data(), &bytes[expected_prefix.size()],
                  8 * combined.size());
      ExpectClose(combined, entry.at("adasum").get<std::vector<double>>(),
                  1e-12);
    }
  }
}

TEST(AggCombineTest, GeneratedMatrices) {
  const Json& entry = Golden().at("lcg_biased").at("seed8_P8_n1000_c2.0");
  for (const char* type : {"<f4", "<f8"}) {
    const RunResult result =
        RunSteps({"--rule=adasum"}, {BiasedLcgRows(8, 8, 1000, 2.0)}, type);
    ExpectClose(result.lines[0].at("coefficients").get<std::vector<double>>(),
                entry.at("adasum_w").get<std::vector<double>>(), 1e-12);
    EXPECT_FALSE(result.lines[0].at("fallback").get<bool>());
  }
}

TEST(AggCombineTest, AdaconsCarriesItsMomentum) {
  for (const std::string unsort : {"scatter", "gather"}) {
    const Json& steps = Golden().at("adacons").at("P3_" + unsort);
    std::vector<Rows> matrices;
    for (const Json& step : steps) matrices.push_back(step.at("A").get<Rows>());
    const RunResult result =
        RunSteps({"--rule=adacons", "--adacons_beta=0.99",
                  "--adacons_epsilon=1e-8", "--adacons_unsort=" + unsort},
                 matrices);
    for (size_t t = 0; t < steps.size(); ++t) {
      ExpectClose(result.lines[t].at("coefficients").get<std::vector<double>>(),
                  steps[t].at("c").get<std::vector<double>>(), 1e-12);
      EXPECT_EQ(result.lines[t].at("step").get<double>(), t);
    }
  }
}

TEST(AggCombineTest, AdaconsRescales) {
  const Rows rows = BiasedLcgRows(3, 4, 50, 0.5);
  const double mean =
      static_cast<double>(reference::Norm(reference::Mean(rows)));
  EXPECT_NEAR(
      RunSteps({"--rule=adacons", "--adacons_rescale=match_mean"}, {rows})
          .lines[0]
          .at("norm")
          .get<double>(),
      mean, 1e-13);
}

TEST(AggCombineTest, AdaconsGuardShowsAsFallback) {
  const Rows rows = Golden().at("hand").at("adacons_flip").at("A").get<Rows>();
  const RunResult result = RunSteps({"--rule=adacons"}, {rows});
  EXPECT_TRUE(result.lines[0].at("fallback").get<bool>());
  EXPECT_EQ(result.lines[0].at("coefficients").get<std::vector<double>>(),
            std::vector<double>(4, 0.25));
}

TEST(AggCombineTest, AdascaleSequences) {
  const Json& golden = Golden().at("adascale_P4_n64_c0.3_seed20..23");
  std::vector<Rows> steps;
  for (int t = 0; t < 4; ++t)
    steps.push_back(BiasedLcgRows(20 + t, 4, 64, 0.3));
  for (const auto& [averaging, name] :
       {std::pair("debiased", "fairscale"), std::pair("paper", "paper")}) {
    const RunResult result =
        RunSteps({"--rule=mean", "--step_scale=adascale", "--learning_rate=0.5",
                  absl::StrCat("--averaging=", averaging)},
                 steps, "<f4");
    double tau = 0.0;
    for (int t = 0; t < 4; ++t) {
      const double gain = golden.at(name).at(t).at("gain").get<double>();
      tau += gain;
      const Json& line = result.lines[t];
      EXPECT_NEAR(line.at("gain").get<double>(), gain, 1e-12);
      EXPECT_NEAR(line.at("tau").get<double>(), tau, 1e-11);
      EXPECT_NEAR(line.at("learning_rate").get<double>(), 0.5 * gain, 1e-12);
      EXPECT_NEAR(line.at("sigma2").get<double>(),
                  golden.at(name).at(t).at("var_hat").get<double>(), 1e-12);
      EXPECT_NEAR(line.at("sigma2_mean").get<double>(),
                  golden.at(name).at(t).at("var").get<double>(), 1e-12);
    }
  }
}

// By the golden averages: the gain of a step is that of the averages before.
TEST(AggCombineTest, ALaggedGainIsThatOfTheStepBefore) {
  const Json& golden = Golden().at("adascale_P4_n64_c0.3_seed20..23");
  std::vector<Rows> steps;
  for (int t = 0; t < 4; ++t)
    steps.push_back(BiasedLcgRows(20 + t, 4, 64, 0.3));
  const RunResult result =
      RunSteps({"--rule=mean", "--step_scale=adascale", "--averaging=lagged"},
               steps, "<f4");
  for (int t = 0; t < 4; ++t) {
    const Json& line = result.lines[t];
    const double gain = golden.at("paper").at(t).at("gain").get<double>();
    EXPECT_NEAR(line.at("next_gain").get<double>(), gain, 1e-12);
    EXPECT_EQ(line.at("gain"),
              t == 0 ? Json(1.0) : result.lines[t - 1].at("next_gain"));
  }
}

TEST(AggCombineTest, SmoothingPerBaselineBatchIsThePowerOfTheirNumber) {
  std::vector<Rows> steps;
  for (int t = 0; t < 3; ++t) {
    steps.push_back(BiasedLcgRows(20 + t, 4, 64, 0.3));
  }
  const auto run = [&](std::vector<std::string> options) {
    options.push_back("--rule=mean");
    return RunSteps(std::move(options), steps, "<f4").lines[2].at("gain");
  };
  EXPECT_EQ(run({"--smoothing=0.5", "--smoothing_per=baseline_batch"}),
            run({"--smoothing=0.0625"}));
}

TEST(AggCombineTest, OtherRules) {
  const Rows rows = {{3, 4}, {0, 2}};
  const auto coefficients = [&](std::vector<std::string> options) {
    return RunSteps(std::move(options), {rows})
        .lines[0]
        .at("coefficients")
        .get<std::vector<double>>();
  };
  EXPECT_EQ(coefficients({"--rule=sum"}), (std::vector<double>{1, 1}));
  EXPECT_EQ(coefficients({"--rule=mean"}), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(coefficients({"--rule=weighted_mean", "--examples=3,1"}),
            (std::vector<double>{0.75, 0.25}));
  EXPECT_EQ(coefficients({"--rule=unit_mean"}),
            (std::vector<double>{0.1, 0.25}));
  EXPECT_EQ(coefficients({"--rule=sum", "--clip_norm=1.5", "--scope=global"}),
            (std::vector<double>(2, 1.5 / std::sqrt(45.0))));
}

TEST(AggCombineTest, NonFiniteRowsAreExcluded) {
  for (const char* type : {"<f2", "<f4", "<f8"}) {
    const RunResult result = RunSteps(
        {"--rule=mean"}, {{{1, 2}, {kNan, 0}, {3, 4}, {INFINITY, 0}}}, type);
    const Json& line = result.lines[0];
    EXPECT_EQ(line.at("excluded").get<std::vector<double>>(),
              (std::vector<double>{1, 3}));
    EXPECT_EQ(line.at("coefficients").get<std::vector<double>>(),
              (std::vector<double>{0.5, 0, 0.5, 0}));
    EXPECT_TRUE(line.at("gram").at(1).at(1).is_null());
    EXPECT_EQ(line.at("gram").at(0).at(2).get<double>(), 11.0);
  }
}

TEST(AggCombineTest, RobustRulesAndOutliers) {
  const Rows rows = {{90, 90}, {1, 0}, {1, 1}, {1, 3}, {1, 4}};
  const auto line = [&](std::vector<std::string> flags) {
    return RunSteps(flags, {rows}).lines[0];
  };
  const auto coefficients = [&](std::vector<std::string> flags) {
    return line(flags).at("coefficients").get<std::vector<double>>();
  };
  EXPECT_EQ(coefficients({"--rule=krum"}),
            (std::vector<double>{0, 0, 1, 0, 0}));
  EXPECT_EQ(coefficients({"--rule=multi_krum"}),
            (std::vector<double>{0, 0.25, 0.25, 0.25, 0.25}));
  EXPECT_EQ(coefficients({"--rule=multi_krum", "--krum_selected=2",
                          "--krum_byzantine_workers=1"}),
            (std::vector<double>{0, 0, 0.5, 0.5, 0}));
  EXPECT_LT(coefficients({"--rule=geometric_median"})[0], 0.03);
  EXPECT_EQ(
      coefficients({"--rule=geometric_median", "--geometric_median_epsilon=1",
                    "--geometric_median_iterations=1"})
          .size(),
      5u);
  const Json excluded = line({"--rule=mean", "--outliers_max_deviations=2"});
  EXPECT_EQ(excluded.at("outliers"), Json::array({0}));
  EXPECT_EQ(excluded.at("excluded"), Json::array({0}));
  const Json warned = line(
      {"--rule=mean", "--outliers_max_deviations=2", "--outliers_action=warn"});
  EXPECT_EQ(warned.at("outliers"), Json::array({0}));
  EXPECT_EQ(warned.at("excluded"), Json::array());
}

// Five rows are enough for one byzantine row, and for a look for outliers.
TEST(AggCombineTest, TooFewRowsAreNamed) {
  const Rows rows = BiasedLcgRows(3, 5, 50, 0.5);
  const Rows three(rows.begin(), rows.begin() + 3);
  const auto line = [](const Rows& matrix, const std::string& byzantine) {
    return RunSteps({"--rule=krum", "--krum_byzantine_workers=" + byzantine,
                     "--outliers_max_deviations=1000"},
                    {matrix})
        .lines[0];
  };
  const Json enough = line(rows, "1");
  EXPECT_FALSE(enough.at("short_of_rows").get<bool>());
  EXPECT_FALSE(enough.at("outliers_not_judged").get<bool>());
  EXPECT_TRUE(line(rows, "2").at("short_of_rows").get<bool>());
  const Json few = line(three, "0");
  EXPECT_FALSE(few.at("short_of_rows").get<bool>());
  EXPECT_TRUE(few.at("outliers_not_judged").get<bool>());
}

TEST(AggCombineTest, AStepWithoutFiniteRowsIsSkipped) {
  const RunResult result =
      RunSteps({"--rule=adasum"}, {{{1, 2}}, {{kNan, 1}}, {{3, 4}}});
  const Json& line = result.lines[1];
  EXPECT_EQ(line.at("skipped").get<std::string>(),
            "every row has a non-finite value");
  EXPECT_EQ(line.at("coefficients").get<std::vector<double>>(),
            std::vector<double>{0});
  for (const char* name :
       {"norm", "orthogonality", "gradient_diversity", "mean_pairwise_cosine",
        "kappa", "sigma2", "mu2", "gain"}) {
    EXPECT_TRUE(line.at(name).is_null()) << name;
  }
  EXPECT_EQ(line.at("tau").get<double>(), 1.0);
  EXPECT_EQ(result.lines[2].at("tau").get<double>(), 2.0);
}

// Rows whose squares leave the range of double give the same combination.
TEST(AggCombineTest, RowsOfAnyMagnitude) {
  const Rows rows = BiasedLcgRows(4, 5, 60, 0.4);
  for (const char* rule :
       {"adasum", "adasum_counted", "mean", "unit_mean", "adacons"}) {
    const std::vector<std::string> options = {absl::StrCat("--rule=", rule),
                                              "--adacons_epsilon=1e-300",
                                              "--variance_floor=0"};
    const Json expected = RunSteps(options, {rows}).lines[0];
    for (const int exponent : {-700, -100, 100, 700}) {
      Rows scaled = rows;
      for (std::vector<double>& row : scaled) {
        for (double& value : row) value = std::ldexp(value, exponent);
      }
      const Json line = RunSteps(options, {scaled}).lines[0];
      SCOPED_TRACE(absl::StrCat(rule, " 2^", exponent));
      const std::string name(rule);
      const bool unit = name != "unit_mean" && name != "adacons";
      EXPECT_NEAR(
          std::ldexp(line.at("norm").get<double>(), unit ? -exponent : 0),
          expected.at("norm").get<double>(), 1e-12);
      EXPECT_NEAR(line.at("orthogonality").get<double>(),
                  expected.at("orthogonality").get<double>(), 1e-13);
      EXPECT_NEAR(line.at("gain").get<double>(),
                  expected.at("gain").get<double>(), 1e-11);
      const std::vector<double> weights =
          line.at("coefficients").get<std::vector<double>>();
      for (int i = 0; i < 5; ++i) {
        EXPECT_NEAR(std::ldexp(weights[i], unit ? 0 : exponent),
                    expected.at("coefficients").at(i).get<double>(), 1e-12);
      }
      EXPECT_EQ(line.at("sigma2").is_null(), exponent == 700);
    }
  }
}

TEST(AggCombineTest, StateSurvivesAChangeOfMagnitude) {
  Rows huge = BiasedLcgRows(4, 5, 60, 0.4);
  for (std::vector<double>& row : huge) {
    for (double& value : row) value = std::ldexp(value, 80);
  }
  const Rows small = BiasedLcgRows(5, 5, 60, 0.4);
  const RunResult result = RunSteps({"--rule=mean"}, {huge, small});
  const double first = result.lines[0].at("sigma2_mean").get<double>();
  const double second = result.lines[1].at("sigma2").get<double>();
  // theta = 0.995: the debiased average of two samples.
  EXPECT_NEAR(result.lines[1].at("sigma2_mean").get<double>(),
              (0.995 * first + second) / 1.995, 1e-12 * first);
}

TEST(AggCombineTest, CancellationTakesTheCompensatedGram) {
  for (const char* type : {"<f4", "<f8"}) {
    Rows rows = NormalRows(1, 4, 500);
    for (int k = 0; k < 500; ++k) {
      rows[1][k] = static_cast<float>(1e-6 * rows[1][k] - rows[0][k]);
    }
    const RunResult result = RunSteps({"--rule=adasum"}, {rows}, type);
    const Json& line = result.lines[0];
    EXPECT_TRUE(line.at("fallback").get<bool>());
    EXPECT_GT(line.at("kappa").get<double>(), 1e10);
    const reference::Vector expected = reference::AdasumTree(rows);
    const reference::Vector combined = reference::WeightedSum(
        rows, line.at("coefficients").get<std::vector<double>>());
    EXPECT_LE(static_cast<double>(reference::Distance(combined, expected) /
                                  reference::Norm(expected)),
              1e-9);
    EXPECT_FALSE(RunSteps({"--rule=adasum", "--kappa_limit=1e300"}, {rows})
                     .lines[0]
                     .at("fallback")
                     .get<bool>());
  }
}

TEST(AggCombineTest, FilesRepeatOrComeWithCommas) {
  const std::string one = WriteTestFile("one.npy", Npy({{1, 2}}, "<f4"));
  const std::string two =
      WriteTestFile("two.npy", Npy({{1, 2}, {3, 4}}, "<f8"));
  for (const std::vector<std::string>& files :
       {std::vector<std::string>{"--gradients=" + one, "--gradients=" + two},
        {"--gradients=" + one + "," + two},
        {"--gradients", one, "--gradients", two}}) {
    std::vector<std::string> arguments = files;
    arguments.push_back("--rule=adacons");  // P grows: elastic
    const RunResult result = RunTool(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.error;
    ASSERT_EQ(result.lines.size(), 2u);
    EXPECT_EQ(result.lines[0].at("file").get<std::string>(), one);
    EXPECT_EQ(result.lines[1].at("coefficients").size(), 2u);
  }
}

TEST(AggCombineTest, RowsWithoutElements) {
  const std::string path =
      WriteTestFile("empty.npy", NpyPrefix(1, NpyHeader("<f4", "(3, 0)")));
  const RunResult result = RunTool({"--rule=adasum", "--gradients=" + path});
  EXPECT_EQ(result.exit_code, 0) << result.error;
  EXPECT_TRUE(result.lines[0].at("orthogonality").is_null());
  EXPECT_EQ(result.lines[0].at("norm").get<double>(), 0.0);
}

// What agg_combine refuses, and how: end to end.

// Exit code 2 and one clear line.
void ExpectRefused(const std::vector<std::string>& arguments,
                   const std::string& message) {
  const RunResult result = RunTool(arguments);
  EXPECT_EQ(result.exit_code, 2) << message;
  EXPECT_THAT(result.error, HasSubstr(message));
  EXPECT_THAT(result.error, HasSubstr("agg_combine: "));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1)
      << result.error;
}

TEST(AggCombineErrorsTest, MalformedFilesGetOneLineAndExitCodeTwo) {
  for (const MalformedNpy& file : MalformedNpyFiles()) {
    const std::string path = WriteTestFile(file.name + ".npy", file.bytes);
    ExpectRefused({"--rule=mean", "--gradients=" + path}, path + ": ");
  }
  ExpectRefused({"--rule=mean", "--gradients=no/such.npy"}, "no/such.npy");
}

// Names of files and what is in them: U+202E turns the text around, U+009B is a
// terminal's escape sequence.
TEST(AggCombineErrorsTest, ControlsAndOverridesAreEscaped) {
  ExpectRefused({"--rule=mean", "--gradients=no/such\xe2\x80\xae.npy"},
                "no/such\\u202e.npy");
  ExpectRefused({"--rule=m\xc2\x9b", "--gradients=a.npy"}, "m\\u009b");
  std::string bytes = Npy({{1, 2}}, "<f4");
  const size_t type = bytes.find("<f4");
  ASSERT_NE(type, std::string::npos);
  bytes.replace(type, 3, "<\x7f\x01");
  const std::string path = WriteTestFile("type.npy", bytes);
  ExpectRefused({"--rule=mean", "--gradients=" + path}, "\\x7f\\x01");
}

TEST(AggCombineErrorsTest, AnotherNumberOfElementsIsRefusedByName) {
  const std::string two = WriteTestFile("two.npy", Npy({{1, 2}}, "<f4"));
  const std::string three = WriteTestFile("three.npy", Npy({{1, 2, 3}}, "<f4"));
  ExpectRefused({"--rule=mean", "--gradients=" + two, "--gradients=" + three},
                three + ": rows of 3 elements");
}

TEST(AggCombineErrorsTest, BadFlagsAreRefused) {
  const std::string file =
      "--gradients=" + WriteTestFile("good.npy", Npy({{1}, {2}}, "<f4"));
  ExpectRefused({file}, "--rule is missing; allowed: ");
  ExpectRefused({"--rule=mean"}, "--gradients is missing; allowed: ");
  ExpectRefused({"--rule=average", file},
                "--rule is \"average\"; allowed: \"sum\"");
  ExpectRefused({"--rule=external", file},
                "--rule is \"external\"; allowed: a rule that is computed "
                "here: a process beside a job decides this one");
  ExpectRefused({"--rule=mean", "--step_scale=big", file},
                "--step_scale is \"big\"; allowed: ");
  ExpectRefused({"--rule=mean", "--scope=shard", file},
                "--scope is \"shard\"; allowed: ");
  ExpectRefused({"--rule=adacons", "--adacons_beta=1", file},
                "adacons.beta is 1");
  ExpectRefused({"--rule=adacons", "--adacons_unsort=sorted", file},
                "--adacons_unsort is \"sorted\"");
  ExpectRefused({"--rule=krum", "--krum_byzantine_workers=-1", file},
                "--krum_byzantine_workers is \"-1\"; allowed: 0 or more");
  ExpectRefused(
      {"--rule=geometric_median", "--geometric_median_epsilon=2", file},
      "geometric_median.epsilon is 2; allowed: in [1e-8, 1]");
  ExpectRefused({"--rule=mean", "--outliers_action=x", file},
                "--outliers_action is \"x\"; allowed: \"exclude\", \"warn\"");
  ExpectRefused({"--rule=adasum", "--step_scale=adascale", file}, "force");
  ExpectRefused({"--rule=mean", "--examples=0", file},
                "--examples is \"0\"; allowed: whole numbers from 1");
  ExpectRefused({"--rule=mean", "--accumulation=1,2,3", file},
                "--accumulation has 3 numbers for 2 rows");
  ExpectRefused({"--rule=mean", "--clip_norm=-1", file}, "clip_norm is -1");
  ExpectRefused({"--rule=mean", file, "stray"}, "\"stray\"");
  const RunResult forced =
      RunTool({"--rule=adasum", "--step_scale=adascale", "--force", file});
  EXPECT_EQ(forced.exit_code, 0) << forced.error;
  ExpectRefused({"--rule=mean", "--no_such_flag=1", file},
                "unknown flag \"--no_such_flag=1\"; allowed: ");
  ExpectRefused({"-rule=mean", file}, "unexpected argument \"-rule=mean\"");
  ExpectRefused({"--rule=mean", "--clip_norm=much", file},
                "--clip_norm is \"much\"; allowed: a number");
  ExpectRefused({"--rule=mean", "--force=perhaps", file},
                "--force is \"perhaps\"; allowed: true, false");
}

TEST(AggCombineErrorsTest, AnOutputThatCannotBeWrittenIsExitCodeOne) {
  const std::string file =
      "--gradients=" + WriteTestFile("good.npy", Npy({{1}}, "<f4"));
  const RunResult result =
      RunTool({"--rule=mean", file, "--output=no/such/folder/out.npy"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error, HasSubstr("no/such/folder/out.npy"));
}

}  // namespace
}  // namespace agg
