#include "server/round/round_numbers.h"

#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/round/round_report.h"

namespace agg {
namespace {

TEST(RoundNumbersTest, NamesAreUniqueInEachOutlet) {
  for (const auto outlet :
       {&RoundOutlets::metric, &RoundOutlets::page, &RoundOutlets::tile,
        &RoundOutlets::report, &RoundOutlets::trace, &RoundOutlets::step}) {
    std::set<std::string> names;
    for (const RoundNumber& number : RoundNumbers()) {
      const std::string name = NameIn(number, outlet);
      if (name.empty()) continue;
      EXPECT_TRUE(names.insert(name).second) << name;
    }
    EXPECT_FALSE(names.empty());
  }
}

TEST(RoundNumbersTest, EachIsDescribed) {
  std::set<std::string> names;
  for (const RoundNumber& number : RoundNumbers()) {
    EXPECT_TRUE(names.insert(number.name).second) << number.name;
    EXPECT_TRUE(absl::EndsWith(number.help, ".")) << number.name;
    // Prometheus' names of sums end so, and no others.
    EXPECT_EQ(absl::EndsWith(NameIn(number, &RoundOutlets::metric), "_total"),
              number.set_by == SetBy::kSum)
        << number.name;
    // A tile shows what the page's data has.
    EXPECT_FALSE(NameIn(number, &RoundOutlets::page).empty() &&
                 !NameIn(number, &RoundOutlets::tile).empty())
        << number.name;
  }
}

TEST(RoundNumbersTest, ValuesAreReadAndWritten) {
  RoundReport report;
  double value = 1.0;
  for (const RoundNumber& number : RoundNumbers()) {
    if (!number.value.IsDerived()) number.value.Set(value += 0.5, &report);
  }
  // Each has a place of its own: nothing was written over.
  value = 1.0;
  for (const RoundNumber& number : RoundNumbers()) {
    if (number.value.IsDerived()) continue;
    EXPECT_EQ(number.value.Get(report), value += 0.5) << number.name;
  }
  EXPECT_EQ(ReadRoundNumbers(report).size(), RoundNumbers().size());
}

TEST(RoundNumbersTest, ANewNumberIsEverywhere) {
  constexpr RoundNumber kNew = {"gradient_norm_spread", "ratio", "A new one.",
                                RoundValue(&Decision::gain)};
  for (const auto outlet : {&RoundOutlets::metric, &RoundOutlets::page,
                            &RoundOutlets::trace, &RoundOutlets::step}) {
    EXPECT_EQ(NameIn(kNew, outlet), "gradient_norm_spread");
  }
  EXPECT_EQ(LabelIn(kNew, &RoundOutlets::tile), "gradient norm spread");
  EXPECT_EQ(LabelIn(kNew, &RoundOutlets::report), "gradient norm spread");
  constexpr RoundNumber kLogged = {
      "hidden",
      "",
      "In the round log alone.",
      RoundValue(&Decision::gain),
      {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr}};
  EXPECT_EQ(NameIn(kLogged, &RoundOutlets::metric), "");
  EXPECT_EQ(LabelIn(kLogged, &RoundOutlets::tile), "");
}

}  // namespace
}  // namespace agg
