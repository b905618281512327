#include "tests/bench/report/gpu_report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::Not;

Json Check(const std::string& verdict, const Json& reason = nullptr) {
  return {{"name", "cuda_jobs"}, {"verdict", verdict}, {"seconds", 12},
          {"limit_s", 90},       {"cases", nullptr},   {"reason", reason}};
}

Json Spread(double median) {
  return {{"median", median}, {"min", median / 2}, {"max", median * 2}};
}

Json Kernels() {
  const Json row = {{"kernel", "gram"},
                    {"route", "hand"},
                    {"P", 32},
                    {"dtype", "f32"},
                    {"optimizer", nullptr},
                    {"gb_per_s", Spread(3000)},
                    {"share_of_copy", Spread(0.75)},
                    {"share_of_read", Spread(0.7)},
                    {"share_of_mix", nullptr},
                    {"launches", 6},
                    {"blocks_per_sm", {{"driver", 2}, {"expected", 3}}},
                    {"sm_mhz", {{"before", 1755}, {"after", 1980}}}};
  return {{"program", "cuda_kernels"},
          {"complete", true},
          {"copy", {{"gb_per_s", Spread(4000)}}},
          {"bus", {{"host_to_device_gb_per_s", Spread(50)}}},
          {"fp64", {{"m16n8k4_tflop_per_s", Spread(60)}}},
          {"calls", {{"gram_us", 12.5}, {"update_us", 20}}},
          {"cublas", nullptr},
          {"rows", Json::array({row})}};
}

Json RoundFile() {
  const Json round = {{"P", 8},
                      {"dtype", "f32"},
                      {"optimizer", "adamw"},
                      {"round_s", Spread(0.1)},
                      {"round_over_slower", Spread(1.1)}};
  return {{"program", "round_gpu"},
          {"complete", true},
          {"rounds", Json::array({round})}};
}

Json DeviceFile() {
  const Json round = {
      {"P", 2},
      {"workers", "threads"},
      {"dtype", "f32"},
      {"optimizer", "sgd"},
      {"round_s", Spread(0.004)},
      {"round_over_traffic", Spread(1.5)},
      {"server_s", {{"gram", Spread(0.001)}}},
      {"client_s", {{"commit", Spread(0.002)}, {"push", Spread(0.003)}}}};
  return {{"program", "round_device"},
          {"complete", true},
          {"rounds", Json::array({round})},
          {"host_way",
           {{"transport", "shm"},
            {"push_s", Spread(0.01)},
            {"push_over_copy", Spread(1.25)},
            {"pull_s", Spread(0.02)},
            {"pull_over_copy", Spread(1.75)}}},
          {"device_rows_round_over_traffic", 1.5}};
}

Json Loopback() {
  return {{"program", "round_loopback"},
          {"complete", true},
          {"workers", 4},
          {"optimizer", "sgd"},
          {"variants",
           Json::array({{{"name", "Grams early"}, {"round_s", Spread(0.2)}}})}};
}

Json RunFacts() {
  return {{"revision", "abc"},
          {"date", "2026-11-24"},
          {"seconds", 100},
          {"limit_s", 480}};
}

Json Host() {
  return {{"cpu", "Some CPU"},
          {"cores", 16},
          {"memory_bytes", int64_t{128} << 30},
          {"kernel", "Linux 6.1"},
          {"glibc", "2.36"}};
}

Json Card() { return {{"name", "NVIDIA H200"}, {"driver", "580.1"}}; }

Json Full() {
  return MakeReport(RunFacts(), Host(), Card(), Json::array({Check("passed")}),
                    {{"cuda_kernels", Kernels()},
                     {"round_gpu", RoundFile()},
                     {"round_device", DeviceFile()},
                     {"round_loopback", Loopback()}},
                    {});
}

Json OfChecks(const Json& checks) {
  return MakeReport(RunFacts(), Host(), nullptr, checks, Json::object(), {});
}

TEST(GpuReportTest, HasEverythingThatWasMeasured) {
  const Json report = Full();
  EXPECT_EQ(report["schema"], 1);
  EXPECT_EQ(report["verdict"], "passed");
  EXPECT_EQ(report["revision"], "abc");
  EXPECT_EQ(report["host"], Host());
  EXPECT_EQ(report["card"], Card());
  EXPECT_EQ(report["checks"].size(), 1u);
  EXPECT_EQ(report["copy"]["gb_per_s"]["median"], 4000);
  EXPECT_EQ(report["rows"][0]["target"]["verdict"], "missed");
  EXPECT_EQ(report["rounds"][0]["P"], 8);
  EXPECT_EQ(report["device_rounds"][0]["P"], 2);
  EXPECT_EQ(report["host_way"]["transport"], "shm");
  EXPECT_EQ(report["loopback"]["workers"], 4);
  EXPECT_EQ(report["targets"].size(), 6u);
  EXPECT_EQ(report["targets"][5]["verdict"], "missed");
  EXPECT_EQ(report["notes"], Json::array());
}

TEST(GpuReportTest, AMissedTargetFailsNothingAndAFailedCheckDoes) {
  EXPECT_EQ(Full()["verdict"], "passed");
  EXPECT_EQ(OfChecks({Check("passed"), Check("failed", "status 1")})["verdict"],
            "failed");
  EXPECT_EQ(OfChecks(Json::array({Check("skipped", "no device")}))["verdict"],
            "skipped");
}

TEST(GpuReportTest, WhatIsMissingIsNullAndNoted) {
  const Json none = OfChecks(Json::array({Check("skipped", "no device")}));
  EXPECT_EQ(none["card"], nullptr);
  EXPECT_EQ(none["copy"], nullptr);
  EXPECT_EQ(none["rows"], Json::array());
  EXPECT_EQ(none["rounds"], nullptr);
  EXPECT_EQ(none["device_rounds"], nullptr);
  EXPECT_EQ(none["host_way"], nullptr);
  EXPECT_EQ(none["targets"][0]["verdict"], "not measured");

  Json cut = Kernels();
  cut["complete"] = false;
  const Json report =
      MakeReport(RunFacts(), Host(), {{"name", "NVIDIA A100"}}, Json::array(),
                 {{"cuda_kernels", cut}}, {"a note"});
  EXPECT_EQ(report["notes"],
            (Json{"a note", "cuda_kernels did not end: rows are missing",
                  "the targets are set for an H200, this is NVIDIA A100"}));
}

TEST(MarkdownTest, IsOneTableWithEverything) {
  const std::string text = MarkdownOf(Full());
  EXPECT_THAT(text, HasSubstr("# GPU checks of agg_server abc, 2026-11-24: "
                              "passed\n"));
  EXPECT_THAT(text, HasSubstr("NVIDIA H200, driver 580.1; Some CPU, 16 cores, "
                              "128 GiB, Linux 6.1, glibc 2.36; 100 of at most "
                              "480 s."));
  EXPECT_THAT(text, HasSubstr("| cuda_jobs |  |  |  | 12 s |  |  | passed |"));
  EXPECT_THAT(
      text, HasSubstr("| gram, hand | 32 | f32 |  | 3000 GB/s (1500 .. 6000) | "
                      "75% (37.5 .. 150) | >= 80% | missed; 70% (35 .. 140) "
                      "of the read, **2 of 3 blocks per SM**, SM at 1755 .. "
                      "1980 MHz |"));
  EXPECT_THAT(text, HasSubstr("| fp64 m16n8k4 |  |  |  | 60 TFLOP/s (30 .. "
                              "120) |"));
  EXPECT_THAT(text, HasSubstr("| a call of gram, 1 Ki elements |  |  |  | "
                              "12.5 us |"));
  EXPECT_THAT(text,
              HasSubstr("| round | 8 | f32 | adamw | 100 ms (50 .. 200)"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "| push, worker on a card, shard on the host (shm) | 1 | f32 |"));
  EXPECT_THAT(text, HasSubstr(" of a copy from pinned memory"));
  EXPECT_THAT(text, HasSubstr("| round, rows on the device, workers are "
                              "threads | 2 | f32 | sgd | "
                              "4 ms (2 .. 8) |  |  | 1.5 (0.75 .. 3) of its "
                              "memory traffic |"));
  EXPECT_THAT(text, HasSubstr("| its phases on the server | 2 | f32 | sgd | "
                              "gram 1 ms (0.5 .. 2) |"));
  EXPECT_THAT(text, HasSubstr("| its parts in the slowest worker | 2 | f32 | "
                              "sgd | commit 2 ms (1 .. 4), push 3 ms (1.5 .. "
                              "6) |"));
  EXPECT_THAT(text, HasSubstr("| whole round, Grams early | 4 | f32 | sgd | "
                              "200 ms (100 .. 400)"));
  EXPECT_THAT(text,
              HasSubstr("| **a round from rows on the device / its memory "
                        "traffic** |  |  |  | 1.5 |  | <= 1.25 | "
                        "**missed** |"));
  // One table: a blank line before it, and none in it.
  const std::string table = text.substr(text.find("\n\n", 3) + 2);
  EXPECT_THAT(table.substr(table.find('|')), Not(HasSubstr("\n\n")));
}

TEST(MarkdownTest, LeavesOutWhatIsNotKnown) {
  Json kernels = Kernels();
  Json& row = kernels["rows"][0];
  row["route"] = "cublas";
  row["share_of_read"] = nullptr;
  row["blocks_per_sm"] = nullptr;
  row["sm_mhz"] = {{"before", nullptr}, {"after", nullptr}};
  const std::string text =
      MarkdownOf(MakeReport(RunFacts(), Host(), Card(), Json::array(),
                            {{"cuda_kernels", kernels}}, {}));
  EXPECT_THAT(text, HasSubstr("| 75% (37.5 .. 150) |  |  |\n"));
}

TEST(MarkdownTest, SaysWhyAndDoesNotBreakTheTable) {
  Json failed = Check("failed", "a | b\nc");
  failed["cases"] = {{"passed", 3}, {"failed", 1}, {"skipped", 2}};
  const std::string text = MarkdownOf(OfChecks(Json::array({failed})));
  EXPECT_THAT(text, HasSubstr("| 12 s, 3 cases, 2 skipped, 1 failed |  |  | "
                              "failed: a \\| b c |"));
  EXPECT_THAT(text, HasSubstr("no card; Some CPU"));
  EXPECT_THAT(text, HasSubstr("**not measured**"));
}

using testing::HasSubstr;

TEST(CheckListTest, ReadsEachLine) {
  const auto checks = ReadCheckList(
      "starts_agg_pull\tpassed\t1\t0\t0\t0\t0\t\n"
      "cuda_jobs\tfailed\t90\t90\t7\t1\t2\tkilled at its limit of 90 s\n");
  ASSERT_TRUE(checks.ok()) << checks.status();
  EXPECT_EQ(
      JsonLine(*checks),
      "[{\"name\": \"starts_agg_pull\", \"verdict\": \"passed\", \"seconds\": "
      "1, \"limit_s\": null, \"cases\": null, \"reason\": null}, "
      "{\"name\": \"cuda_jobs\", \"verdict\": \"failed\", \"seconds\": 90, "
      "\"limit_s\": 90, \"cases\": {\"passed\": 7, \"failed\": 1, "
      "\"skipped\": 2}, \"reason\": \"killed at its limit of 90 s\"}]");
  EXPECT_EQ(*ReadCheckList(""), Json::array());
}

TEST(CheckListTest, NamesTheLineThatHasAnotherForm) {
  for (const char* const line :
       {"a\tpassed\t1\t0\t0\t0\t0",          // a field is missing
        "a\tpassed\t1\t0\t0\t0\t0\t\t",      // one too many
        "\tpassed\t1\t0\t0\t0\t0\t",         // no name
        "a\tgreen\t1\t0\t0\t0\t0\t",         // no verdict
        "a\tskipped\t1\t0\t0\t0\t0\t",       // without a reason
        "a\tpassed\t-1\t0\t0\t0\t0\t",       // no time
        "a\tpassed\t1\t0\tmany\t0\t0\t"}) {  // no number
    const auto checks =
        ReadCheckList(std::string("b\tpassed\t1\t0\t0\t0\t0\t\n") + line);
    ASSERT_FALSE(checks.ok()) << line;
    EXPECT_THAT(checks.status().message(), HasSubstr("line 2 of the checks"));
    EXPECT_THAT(checks.status().message(), HasSubstr(line));
  }
}

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
