#include "tests/bench/turn_rates.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

TEST(TurnRatesTest, AShareIsOfTheCopyOfItsOwnTurn) {
  // The device slows down to a half: the kernel's share stays what it is.
  const Json rates = RatesOf({{1.0, 0.5}, {2.0, 1.0}, {4.0, 2.0}}, 3e9, 2e9);
  EXPECT_EQ(JsonLine(rates),
            "{\"bytes\": 3000000000, \"repetitions\": 3, "
            "\"gb_per_s\": {\"median\": 3, \"min\": 1.5, \"max\": 6}, "
            "\"share_of_copy\": {\"median\": 3, \"min\": 3, \"max\": 3}}");
}

TEST(TurnRatesTest, ASlowTurnIsInTheSpreadAndNotInTheMedian) {
  const Json share =
      RatesOf({{1.0, 1.0}, {1.0, 4.0}, {1.0, 1.0}}, 1e9, 1e9)["share_of_copy"];
  EXPECT_EQ(share["median"], 1);
  EXPECT_EQ(share["min"], 0.25);
}

TEST(TurnRatesTest, AYardstickIsOfTheSameTurn) {
  // The kernel takes 1.25 times as long, on a device that slows down.
  const Json share = ShareOfYardstick({{1.0, 1.25, 1.0}, {2.0, 2.5, 2.0}});
  EXPECT_EQ(JsonLine(share), "{\"median\": 0.8, \"min\": 0.8, \"max\": 0.8}");
  EXPECT_EQ(ShareOfYardstick({{1.0, 1.25, 1.0}, {1.0, 1.25}}), nullptr);
}

}  // namespace
}  // namespace agg
