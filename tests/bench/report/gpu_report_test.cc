#include "tests/bench/report/gpu_report.h"

#include <string>

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

}  // namespace
}  // namespace agg
