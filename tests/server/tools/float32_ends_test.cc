// The server's path (a backend's Gram matrix, Decide, the backend's
// combination), agg_combine, and full vectors in 80 bits, at both ends of
// float32 and side by side.
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/combine/rule_table.h"
#include "server/combine/statistics.h"
#include "server/tools/combine_step.h"
#include "tests/conformance/test_rows.h"
#include "tests/reference/combination_rules.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"
#include "worker_client/npz/npy.h"

namespace agg {
namespace {

constexpr int kNumElements = 57;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Lengths of the rows, one after the other and again.
struct Family {
  const char* name;
  std::vector<double> lengths;
  bool has_equal_scores = false;  // many rows are nothing beside the others
};

const Family kFamilies[] = {
    {"usual", {1.0, 3.0}},
    {"large", {1e37, 3e37, 8e37}},
    {"largest", {1.5e38, 3e38}},
    {"smallest normal", {1.2e-38, 5e-38}},
    {"denormal", {1e-44, 3e-42, 1e-40}},
    {"both ends", {1e37, 1e-44}},
    {"ends and between", {1e-44, 1.0, 1e37, 1e-38, 1e19, 1e-20, 2e-42}, true},
    {"far apart", {1e20, 1e-20}},
    {"with zeros", {1e-44, 0.0, 1e37, 0.0, 0.0}},
};

// float32 values, most rows with something in common.
Rows FamilyRows(const Family& family, uint64_t seed, int num_rows) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> part(-1.0, 1.0);
  Rows rows(num_rows, std::vector<double>(kNumElements));
  for (int i = 0; i < num_rows; ++i) {
    const double length = family.lengths[i % family.lengths.size()];
    for (double& value : rows[i]) {
      value = static_cast<float>(length * (0.3 + 0.7 * part(engine)));
    }
  }
  return rows;
}

struct Result {
  Decision decision;
  RoundStatistics statistics;
  std::vector<double> combined;
};

GramMatrix BackendGram(Backend* backend, const TestRows& rows,
                       bool compensated) {
  const std::vector<ElementRange> ranges = {{0, kNumElements}};
  std::vector<double> hi(PackedGramSize(rows.num_rows()));
  std::vector<double> lo(compensated ? hi.size() : 0);
  GramRequest request;
  request.rows = rows.rows();
  request.ranges = ranges;
  request.compensated = compensated;
  request.hi = absl::MakeSpan(hi);
  request.lo = absl::MakeSpan(lo);
  EXPECT_TRUE(backend->Gram(request).ok());
  return GramMatrix::FromPacked(static_cast<int>(rows.num_rows()), hi, lo);
}

std::vector<double> BackendCombination(
    Backend* backend, const TestRows& rows,
    const std::vector<double>& coefficients) {
  auto combined = backend->Allocate(BufferUse::kSnapshot, kNumElements * 4);
  EXPECT_TRUE(combined.ok());
  const std::vector<UpdateRange> ranges = {
      {{0, kNumElements}, coefficients, 1.0f}};
  UpdateRequest request;
  request.rows = rows.rows();
  request.ranges = ranges;
  request.combined = combined->get();
  EXPECT_TRUE(backend->Combine(request).ok());
  const float* const values =
      reinterpret_cast<const float*>((*combined)->host());
  return {values, values + kNumElements};
}

Result OfServer(const CombineOptions& options, const Rows& values) {
  auto backend = MakeBackend("cpu", {});
  EXPECT_TRUE(backend.ok());
  TestRows rows(backend->get(), DType::kF32, values.size(), kNumElements);
  for (size_t i = 0; i < values.size(); ++i) {
    for (int k = 0; k < kNumElements; ++k) {
      rows.Set(i, k, static_cast<float>(values[i][k]));
    }
  }
  rows.Land();
  RoundInput input = MakeRound({values});
  input.tensors[0] = BackendGram(backend->get(), rows, false);
  Result result;
  result.decision = Decide(options, {}, input);
  if (result.decision.kind == DecisionKind::kNeedsCompensated) {
    input.tensors[0] = BackendGram(backend->get(), rows, true);
    result.decision = Decide(options, {}, input);
  }
  CombineState next = result.decision.next_state;
  result.statistics =
      ComputeStatistics(options, {}, input, result.decision, &next);
  if (result.decision.kind == DecisionKind::kApply) {
    result.combined = BackendCombination(backend->get(), rows,
                                         result.decision.coefficients[0]);
  }
  return result;
}

Result OfTool(const CombineOptions& options, const Rows& values,
              bool is_float64) {
  NpyMatrix matrix;
  matrix.num_rows = static_cast<int>(values.size());
  matrix.num_elements = kNumElements;
  matrix.is_float64 = is_float64;
  for (const std::vector<double>& row : values) {
    matrix.values.insert(matrix.values.end(), row.begin(), row.end());
  }
  CombineStepOptions step;
  step.combine = options;
  CombineStepState state;
  const auto result = RunCombineStep(step, matrix, &state);
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->taken_for_zero.empty());
  return {result->decision, result->statistics, result->combined};
}

reference::Real Distance(const std::vector<double>& combined,
                         const reference::Vector& expected) {
  return reference::Distance(reference::ToVector(combined), expected);
}

void ExpectSame(double actual, double expected, double relative,
                const char* what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << what << " " << actual;
  } else {
    EXPECT_NEAR(actual, expected, relative * std::abs(expected)) << what;
  }
}

class Float32EndsTest : public testing::TestWithParam<std::string> {};

TEST_P(Float32EndsTest, ServerToolAndVectorsAgree) {
  const CombineOptions options = MakeOptions(GetParam());
  const auto transcription = reference::FindTranscription(GetParam());
  ASSERT_NE(transcription, nullptr);
  int num_applied = 0;
  for (const Family& family : kFamilies) {
    for (const int num_rows : {1, 2, 3, 5, 8, 13, 32}) {
      SCOPED_TRACE(absl::StrCat(family.name, ", ", num_rows, " rows"));
      const Rows rows = FamilyRows(family, 7 * num_rows, num_rows);
      const reference::Vector expected =
          transcription(rows, std::vector<double>(num_rows, 1.0));
      const Result server = OfServer(options, rows);
      const Result tool = OfTool(options, rows, false);
      const Result wide = OfTool(options, rows, true);
      ASSERT_EQ(tool.decision.kind, server.decision.kind);
      EXPECT_EQ(tool.decision.skip_reason, server.decision.skip_reason);
      const bool fits = reference::Norm(expected) <= FLT_MAX;
      ASSERT_EQ(server.decision.kind == DecisionKind::kApply, fits)
          << server.decision.skip_reason;
      const double orthogonality =
          reference::NormSquared(reference::Sum(rows)) == 0.0L
              ? kNan
              : static_cast<double>(reference::AdasumOrthogonality(rows));
      for (const Result* result : {&server, &tool, &wide}) {
        ExpectSame(result->decision.orthogonality, orthogonality, 1e-12,
                   "orthogonality");
        for (int i = 0; i < num_rows; ++i) {
          ExpectSame(result->statistics.row_norms[i],
                     static_cast<double>(
                         reference::Norm(reference::ToVector(rows[i]))),
                     1e-14, "a row's norm");
        }
        ExpectSame(result->statistics.mean_pairwise_cosine,
                   static_cast<double>(reference::MeanPairwiseCosine(rows)),
                   1e-12, "mean pairwise cosine");
        if (result->decision.kind != DecisionKind::kApply) continue;
        const std::vector<double>& weights = result->decision.coefficients[0];
        // Results are float32, and denormals go in steps.
        const double step = 8 * FLT_TRUE_MIN;
        const double scale = BackwardScale(rows, weights);
        // Krum takes one of rows whose scores are equal in double, which wider
        // numbers tell apart.
        if (GetParam() == "krum" && family.has_equal_scores) {
          EXPECT_EQ(weights, server.decision.coefficients[0]);
          continue;
        }
        EXPECT_LE(reference::Distance(reference::WeightedSum(rows, weights),
                                      expected),
                  1e-13 * scale + step);
        EXPECT_LE(Distance(result->combined, expected),
                  4 * FLT_EPSILON * scale + step);
      }
      ExpectSame(tool.decision.gain, server.decision.gain, 1e-9, "gain");
      num_applied += server.decision.kind == DecisionKind::kApply ? 1 : 0;
    }
  }
  EXPECT_GE(num_applied, 50);  // of 63
}

// Clipping brings what float32 cannot hold back into it, in the tool, too.
TEST(Float32EndsClipTest, ToolClipsWhereTheServerClips) {
  CombineOptions options = MakeOptions("sum");
  const Rows rows = FamilyRows(kFamilies[2], 1, 8);
  EXPECT_EQ(OfServer(options, rows).decision.kind, DecisionKind::kSkip);
  EXPECT_EQ(OfTool(options, rows, false).decision.kind, DecisionKind::kSkip);
  options.clip_norm = 2.0;
  const Result server = OfServer(options, rows);
  const Result tool = OfTool(options, rows, false);
  ASSERT_EQ(server.decision.kind, DecisionKind::kApply);
  ASSERT_EQ(tool.decision.kind, DecisionKind::kApply);
  EXPECT_NEAR(tool.decision.combined_norm, 2.0, 1e-14);
  EXPECT_NEAR(server.decision.combined_norm, 2.0, 1e-14);
  EXPECT_NEAR(
      static_cast<double>(reference::Norm(reference::ToVector(tool.combined))),
      2.0, 1e-14);
}

// The row of the least denormal is not one of zeros.
TEST(Float32EndsClipTest, OneDenormalBesideTheLargest) {
  Rows rows(2, std::vector<double>(kNumElements, 0.0));
  rows[0][0] = FLT_TRUE_MIN;
  rows[1][0] = FLT_MAX;
  for (const bool wide : {false, true}) {
    const Result tool = OfTool(MakeOptions("unit_mean"), rows, wide);
    EXPECT_NEAR(tool.combined[0], 1.0, 1e-15);
  }
  EXPECT_NEAR(OfServer(MakeOptions("unit_mean"), rows).combined[0], 1.0, 1e-7);
}

std::vector<std::string> AllRules() {
  std::vector<std::string> names;
  for (const Rule& rule : Rules()) {
    // agg_combine has no process that could decide.
    if (!rule.Has(kIsExternal)) names.emplace_back(rule.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(EveryRule, Float32EndsTest,
                         testing::ValuesIn(AllRules()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           return info.param;
                         });

}  // namespace
}  // namespace agg
