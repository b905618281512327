#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "server/coordinator/round_engine.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

// With threads: 600 tensors of 64 rows are more than what one does at once.
class OrthogonalityTaskTest : public testing::TestWithParam<int> {
 protected:
  OrthogonalityTaskTest() {
    std::vector<Rows> tensors;
    for (int t = 0; t < GetParam(); ++t) {
      tensors.push_back(LcgRows(static_cast<uint32_t>(t) + 1, 64, 5));
    }
    input_ = MakeRound(tensors);
  }

  RoundInput input_;
};

TEST_P(OrthogonalityTaskTest, CompletesADecisionToThatOfDecide) {
  for (const char* rule : {"mean", "adasum", "adasum_counted", "adacons"}) {
    for (const Scope scope : {Scope::kPerTensor, Scope::kGlobal}) {
      CombineOptions options = MakeOptions(rule);
      options.rule.scope = scope;
      const CompactedRound round = CompactRound(input_.rows, input_.tensors);
      Decision decision = DecideCoefficients(options, {}, 0, round);
      OrthogonalityTask task(options.rule, round, decision);
      task.Finish(&decision);
      EXPECT_FALSE(decision.lacks_orthogonality);
      const Decision expected = Decide(options, {}, input_);
      EXPECT_EQ(decision.coefficients, expected.coefficients);
      EXPECT_EQ(decision.orthogonality, expected.orthogonality);
      ASSERT_EQ(decision.tensors.size(), expected.tensors.size());
      for (size_t t = 0; t < expected.tensors.size(); ++t) {
        EXPECT_EQ(decision.tensors[t].orthogonality,
                  expected.tensors[t].orthogonality);
        EXPECT_EQ(decision.tensors[t].kappa, expected.tensors[t].kappa);
      }
    }
  }
}

TEST_P(OrthogonalityTaskTest, OnlyPlainAdasumPerTensorHasItAnyway) {
  const CompactedRound round = CompactRound(input_.rows, input_.tensors);
  EXPECT_TRUE(DecideCoefficients(MakeOptions("mean"), {}, 0, round)
                  .lacks_orthogonality);
  CombineOptions adasum = MakeOptions("adasum");
  adasum.rule.scope = Scope::kPerTensor;
  EXPECT_FALSE(DecideCoefficients(adasum, {}, 0, round).lacks_orthogonality);
}

TEST_P(OrthogonalityTaskTest, LeavesARoundWithoutRowsUndefined) {
  CompactedRound nothing;
  nothing.num_tensors = 3;
  Decision decision = DecideCoefficients(MakeOptions("mean"), {}, 0, nothing);
  OrthogonalityTask task(MakeOptions("mean").rule, nothing, decision);
  task.Finish(&decision);
  EXPECT_TRUE(std::isnan(decision.orthogonality));
  EXPECT_EQ(decision.tensors.size(), 3u);
}

INSTANTIATE_TEST_SUITE_P(Tensors, OrthogonalityTaskTest,
                         testing::Values(1, 17, 600));

}  // namespace
}  // namespace agg
