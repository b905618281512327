#include "tests/bench/report/targets.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

Json RowOf(const std::string& kernel, const std::string& route, int num_rows,
           const std::string& dtype, const Json& optimizer, double share) {
  return {{"kernel", kernel},       {"route", route},
          {"P", num_rows},          {"dtype", dtype},
          {"optimizer", optimizer}, {"share_of_copy", {{"median", share}}}};
}

// What cuda_kernels writes where everything has the same share.
Json AllRows(double share) {
  Json rows = Json::array();
  for (const char* const dtype : {"f32", "bf16"}) {
    for (const int num_rows : {2, 4, 8, 16, 32, 64}) {
      rows.push_back(RowOf("gram", "hand", num_rows, dtype, nullptr, share));
      if (num_rows > 32) continue;
      for (const char* const optimizer : {"sgd", "adamw", "lamb"}) {
        rows.push_back(
            RowOf("update", "hand", num_rows, dtype, optimizer, share));
      }
    }
  }
  return rows;
}

Json Judged(const Json& rows) { return TargetsOf({{"rows", rows}}, nullptr); }

std::vector<std::string> VerdictsOf(const Json& targets) {
  std::vector<std::string> verdicts;
  for (const Json& target : targets) verdicts.push_back(target["verdict"]);
  return verdicts;
}

using Verdicts = std::vector<std::string>;
constexpr char kNot[] = "not measured";

TEST(TargetsTest, ABoundIsMetWhereItIsReached) {
  EXPECT_EQ(VerdictsOf(Judged(AllRows(0.90))),
            (Verdicts{"met", "met", "met", "met", "met", kNot}));
  EXPECT_EQ(VerdictsOf(Judged(AllRows(0.85))),
            (Verdicts{"missed", "met", "missed", "missed", "met", kNot}));
  EXPECT_EQ(VerdictsOf(Judged(AllRows(0.79))),
            (Verdicts{"missed", "missed", "missed", "missed", "missed", kNot}));
}

TEST(TargetsTest, NothingMeasuredIsNothingMet) {
  const Verdicts none(6, kNot);
  EXPECT_EQ(VerdictsOf(TargetsOf(nullptr, nullptr)), none);
  EXPECT_EQ(VerdictsOf(TargetsOf({{"program", "cuda_kernels"}}, nullptr)),
            none);
  EXPECT_EQ(VerdictsOf(Judged(Json::array())), none);
  EXPECT_EQ(TargetsOf(nullptr, nullptr)[0]["value"], nullptr);
}

TEST(TargetsTest, TheSlowestRowDecides) {
  Json rows = AllRows(0.95);
  rows.push_back(RowOf("gram", "hand", 12, "f32", nullptr, 0.7));
  rows.push_back(RowOf("update", "hand", 3, "bf16", "lamb", 0.5));
  const Json targets = Judged(rows);
  EXPECT_EQ(VerdictsOf(targets),
            (Verdicts{"missed", "met", "met", "met", "missed", kNot}));
  EXPECT_EQ(targets[0]["value"], 0.7);
  EXPECT_EQ(targets[0]["at"]["P"], 12);
  EXPECT_EQ(targets[4]["at"]["optimizer"], "lamb");
}

TEST(TargetsTest, RowsOfOtherSizesAndRoutesHaveNone) {
  Json rows = AllRows(0.95);
  for (const Json& row :
       {RowOf("gram", "hand", 64, "f32", nullptr, 0.1),
        RowOf("gram", "hand", 24, "f32", nullptr, 0.1),
        RowOf("gram", "hand", 16, "bf16", nullptr, 0.1),
        RowOf("gram", "cublas", 16, "f32", nullptr, 0.1),
        RowOf("gram", "double-float", 16, "f32", nullptr, 0.1),
        RowOf("gram", "one launch", 8, "f32", nullptr, 0.1),
        RowOf("update", "one launch", 8, "f32", "sgd", 0.1)}) {
    EXPECT_EQ(TargetOfRow(row), nullptr) << row;
    rows.push_back(row);
  }
  EXPECT_EQ(VerdictsOf(Judged(rows)),
            (Verdicts{"met", "met", "met", "met", "met", kNot}));
}

TEST(TargetsTest, AMissingRowIsNotMet) {
  const Json all = AllRows(0.95);
  Json rows = Json::array();
  for (const Json& row : all) {
    const bool left_out =
        row["P"] == 8 && row["dtype"] == "f32" && row["optimizer"] != "sgd";
    if (!left_out) rows.push_back(row);
  }
  EXPECT_EQ(VerdictsOf(Judged(rows)),
            (Verdicts{kNot, "met", "met", kNot, "met", kNot}));
  // One that is there and misses it, does.
  rows.push_back(RowOf("gram", "hand", 5, "f32", nullptr, 0.2));
  EXPECT_EQ(VerdictsOf(Judged(rows))[0], "missed");
}

TEST(TargetsTest, ARowHasItsOwnVerdict) {
  const Json target =
      TargetOfRow(RowOf("gram", "hand", 32, "f32", nullptr, 0.8));
  EXPECT_EQ(JsonLine(target), "{\"at_least\": 0.8, \"verdict\": \"met\"}");
  EXPECT_EQ(
      TargetOfRow(RowOf("update", "hand", 32, "bf16", "sgd", 0.84))["verdict"],
      "missed");
}

TEST(TargetsTest, DeviceRowsHaveAnUpperBound) {
  const auto judged = [](const Json& value) {
    return TargetsOf(nullptr, {{"device_rows_round_over_traffic", value}})[5];
  };
  EXPECT_EQ(judged(1.25)["verdict"], "met");
  EXPECT_EQ(judged(1.26)["verdict"], "missed");
  EXPECT_EQ(judged(1.26)["value"], 1.26);
  EXPECT_EQ(judged(nullptr)["verdict"], kNot);
}

}  // namespace
}  // namespace agg
