#include "server/combine/simple_rules.h"

#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tests/reference/row_statistics.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

TEST(SimpleRulesTest, SumAndMean) {
  std::vector<double> weights(4);
  SumCoefficients(absl::MakeSpan(weights));
  EXPECT_EQ(weights, std::vector<double>(4, 1.0));
  MeanCoefficients(absl::MakeSpan(weights));
  EXPECT_EQ(weights, std::vector<double>(4, 0.25));
}

TEST(SimpleRulesTest, WeightedMeanMatchesVectors) {
  const Rows rows = NormalRows(1, 5, 33);
  const std::vector<double> examples = {1, 16, 3, 3, 9};
  std::vector<double> weights(5);
  WeightedMeanCoefficients(examples, absl::MakeSpan(weights));
  EXPECT_LE(reference::Distance(reference::WeightedSum(rows, weights),
                                reference::WeightedMean(rows, examples)),
            1e-15 * BackwardScale(rows, weights));
}

TEST(SimpleRulesTest, UnitMeanMatchesVectors) {
  for (const double scale : {1.0, 1e-30, 1e30}) {
    Rows rows = NormalRows(2, 7, 50);
    for (double& value : rows[3]) value *= scale;
    std::vector<double> weights(7);
    UnitMeanCoefficients(MakeGram(rows), absl::MakeSpan(weights));
    EXPECT_LE(reference::Distance(reference::WeightedSum(rows, weights),
                                  reference::UnitMean(rows)),
              1e-15);
  }
}

TEST(SimpleRulesTest, UnitMeanGivesZeroRowsNoWeight) {
  const Rows rows = {{3, 4}, {0, 0}};
  std::vector<double> weights(2);
  UnitMeanCoefficients(MakeGram(rows), absl::MakeSpan(weights));
  EXPECT_EQ(weights, (std::vector<double>{0.1, 0.0}));
}

}  // namespace
}  // namespace agg
