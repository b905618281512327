// Every value of robust.json against the robust rules, at full precision.
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/combine/geometric_median.h"
#include "server/combine/krum.h"
#include "tests/golden/golden_json.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

Rows RowsOf(const Json& entry) {
  Rows rows =
      LcgRows(entry.at("seed").get<uint32_t>(), entry.at("P").get<int>(),
              entry.at("elements").get<int>());
  const double factor = entry.at("factor").get<double>();
  for (const int row : entry.at("scaled").get<std::vector<int>>()) {
    for (double& value : rows[row]) value *= factor;
  }
  return rows;
}

TEST(RobustGoldenTest, KrumsOrderAndTheGeometricMedian) {
  const Json golden = ReadGolden("tests/golden/robust.json");
  ASSERT_GE(golden.at("cases").size(), 5u);
  for (const Json& entry : golden.at("cases")) {
    const std::string name = entry.at("name").get<std::string>();
    const GramMatrix gram = MakeGram(RowsOf(entry));
    const int byzantine = entry.at("byzantine").get<int>();
    EXPECT_EQ(ComputeKrumScores(gram, byzantine, 1).order,
              entry.at("order").get<std::vector<int>>())
        << name;
    // Solved to the end. No row is the median, so that no distance is as short
    // as epsilon.
    std::vector<double> weights(gram.num_rows());
    GeometricMedianCoefficients({1000, 1e-8}, gram, absl::MakeSpan(weights));
    for (size_t i = 0; i < weights.size(); ++i) {
      EXPECT_NEAR(weights[i], entry.at("geometric_median").at(i).get<double>(),
                  1e-12)
          << name << ", row " << i;
    }
  }
}

}  // namespace
}  // namespace agg
