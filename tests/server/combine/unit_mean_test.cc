#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "server/combine/means.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

std::vector<double> Weights(const Rows& rows) {
  const GramMatrix gram = MakeGram(rows);
  std::vector<double> weights(rows.size());
  RuleState state;
  UnitMeanRule().Combine({gram, {}, {}, {}, {}}, &state,
                         absl::MakeSpan(weights));
  return weights;
}

TEST(UnitMeanTest, MatchesVectorsOfAnyLength) {
  for (const double scale : {1.0, 1e-30, 1e30}) {
    Rows rows = NormalRows(2, 7, 50);
    for (double& value : rows[3]) value *= scale;
    EXPECT_LE(reference::Distance(reference::WeightedSum(rows, Weights(rows)),
                                  reference::UnitMean(rows)),
              1e-15);
  }
}

TEST(UnitMeanTest, ZeroRowsHaveNoWeightAndStillCount) {
  EXPECT_EQ(Weights({{3, 4}, {0, 0}}), (std::vector<double>{0.1, 0.0}));
}

}  // namespace
}  // namespace agg
