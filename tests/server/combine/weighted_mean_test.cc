#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "server/combine/combination_rule.h"
#include "server/combine/means.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

TEST(WeightedMeanTest, RowsCountByTheirExamples) {
  const GramMatrix gram = MakeGram({{4, 0}, {0, 4}});
  const std::vector<double> examples = {30, 10};
  std::vector<double> weights(2);
  RuleState state;
  const RuleResult result = WeightedMeanRule().Combine(
      {gram, examples, {}, {}, {}}, &state, absl::MakeSpan(weights));
  EXPECT_EQ(weights, (std::vector<double>{0.75, 0.25}));
  EXPECT_EQ(result.norm_squared, 10.0);
}

}  // namespace
}  // namespace agg
