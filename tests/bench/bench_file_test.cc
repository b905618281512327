#include "tests/bench/bench_file.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool Parses(std::vector<std::string> arguments, BenchFlags* flags) {
  std::vector<char*> words;
  arguments.insert(arguments.begin(), "bench");
  words.reserve(arguments.size());
  for (std::string& argument : arguments) words.push_back(&argument[0]);
  return ParseBenchFlags(static_cast<int>(words.size()), words.data(), flags);
}

TEST(BenchFileTest, HasWhatWasMeasuredBeforeTheEnd) {
  const std::string path = testing::TempDir() + "/bench_file_test.json";
  BenchFile file("some_bench", path);
  EXPECT_EQ(TextOf(path),
            "{\"program\": \"some_bench\", \"complete\": false}\n");
  file.Set("bytes", 3);
  file.Append("rows", {{"P", 2}});
  file.Append("rows", {{"P", 4}});
  EXPECT_EQ(TextOf(path),
            "{\"program\": \"some_bench\", \"complete\": false, \"bytes\": 3, "
            "\"rows\": [{\"P\": 2}, {\"P\": 4}]}\n");
  file.Finish();
  EXPECT_TRUE(Json::parse(TextOf(path))["complete"]);
}

TEST(BenchFileTest, WithoutAPathThereIsNoFile) {
  BenchFile file("some_bench", "");
  file.Set("bytes", 3);
  file.Finish();
}

TEST(BenchFileDeathTest, AFileThatCannotBeWrittenIsNamed) {
  EXPECT_EXIT(BenchFile("some_bench", "/nonexistent/file.json"),
              testing::ExitedWithCode(1), "--json is \"/nonexistent/file.json");
}

TEST(BenchFileTest, ASpreadHasTheMiddleAndBothEnds) {
  EXPECT_EQ(JsonLine(SpreadOf({3.0, 1.0, 2.5})),
            "{\"median\": 2.5, \"min\": 1, \"max\": 3}");
  EXPECT_EQ(JsonLine(SpreadOf({4.0, 1.0})),
            "{\"median\": 4, \"min\": 1, \"max\": 4}");
}

TEST(BenchFileTest, ReadsItsFlags) {
  BenchFlags flags;
  EXPECT_TRUE(Parses({}, &flags));
  EXPECT_FALSE(flags.smoke);
  EXPECT_EQ(flags.json, "");
  EXPECT_TRUE(Parses({"--json=a.json", "--smoke"}, &flags));
  EXPECT_TRUE(flags.smoke);
  EXPECT_EQ(flags.json, "a.json");
  EXPECT_FALSE(Parses({"--json="}, &flags));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(Parses({"--jsons"}, &flags));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "\"--jsons\" is no argument; allowed: --smoke, --json=FILE\n");
}

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
