#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "server/combine/combination_rule.h"
#include "server/combine/means.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

TEST(SumTest, EveryRowCountsOnce) {
  const GramMatrix gram = MakeGram({{3, 0}, {0, 4}, {0, 0}});
  std::vector<double> weights(3);
  RuleState state;
  const RuleResult result = SumRule().Combine({gram, {}, {}, {}, {}}, &state,
                                              absl::MakeSpan(weights));
  EXPECT_EQ(weights, std::vector<double>(3, 1.0));
  EXPECT_EQ(result.norm_squared, 25.0);
}

}  // namespace
}  // namespace agg
