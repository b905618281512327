// What agg_combine refuses, and how: end to end.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/tools/run_agg_combine.h"
#include "tests/worker_client/npz/malformed_npy.h"
#include "tests/worker_client/npz/npy_files.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

// Exit code 2 and one clear line.
void ExpectRefused(const std::vector<std::string>& arguments,
                   const std::string& message) {
  const RunResult result = RunTool(arguments);
  EXPECT_EQ(result.exit_code, 2) << message;
  EXPECT_THAT(result.error, HasSubstr(message));
  EXPECT_THAT(result.error, HasSubstr("agg_combine: "));
  EXPECT_EQ(std::count(result.error.begin(), result.error.end(), '\n'), 1)
      << result.error;
}

TEST(AggCombineErrorsTest, MalformedFilesGetOneLineAndExitCodeTwo) {
  for (const MalformedNpy& file : MalformedNpyFiles()) {
    const std::string path = WriteTestFile(file.name + ".npy", file.bytes);
    ExpectRefused({"--rule=mean", "--gradients=" + path}, path + ": ");
  }
  ExpectRefused({"--rule=mean", "--gradients=no/such.npy"}, "no/such.npy");
}

// Names of files and what is in them: U+202E turns the text around, U+009B is a
// terminal's escape sequence.
TEST(AggCombineErrorsTest, ControlsAndOverridesAreEscaped) {
  ExpectRefused({"--rule=mean", "--gradients=no/such\xe2\x80\xae.npy"},
                "no/such\\u202e.npy");
  ExpectRefused({"--rule=m\xc2\x9b", "--gradients=a.npy"}, "m\\u009b");
  std::string bytes = Npy({{1, 2}}, "<f4");
  const size_t type = bytes.find("<f4");
  ASSERT_NE(type, std::string::npos);
  bytes.replace(type, 3, "<\x7f\x01");
  const std::string path = WriteTestFile("type.npy", bytes);
  ExpectRefused({"--rule=mean", "--gradients=" + path}, "\\x7f\\x01");
}

TEST(AggCombineErrorsTest, AnotherNumberOfElementsIsRefusedByName) {
  const std::string two = WriteTestFile("two.npy", Npy({{1, 2}}, "<f4"));
  const std::string three = WriteTestFile("three.npy", Npy({{1, 2, 3}}, "<f4"));
  ExpectRefused({"--rule=mean", "--gradients=" + two, "--gradients=" + three},
                three + ": rows of 3 elements");
}

TEST(AggCombineErrorsTest, BadFlagsAreRefused) {
  const std::string file =
      "--gradients=" + WriteTestFile("good.npy", Npy({{1}, {2}}, "<f4"));
  ExpectRefused({file}, "--rule is missing; allowed: ");
  ExpectRefused({"--rule=mean"}, "--gradients is missing; allowed: ");
  ExpectRefused({"--rule=average", file},
                "--rule is \"average\"; allowed: \"sum\"");
  ExpectRefused({"--rule=mean", "--step_scale=big", file},
                "--step_scale is \"big\"; allowed: ");
  ExpectRefused({"--rule=mean", "--scope=shard", file},
                "--scope is \"shard\"; allowed: ");
  ExpectRefused({"--rule=adacons", "--adacons_beta=1", file},
                "adacons.beta is 1");
  ExpectRefused({"--rule=krum", "--krum_byzantine_workers=-1", file},
                "--krum_byzantine_workers is \"-1\"; allowed: 0 or more");
  ExpectRefused(
      {"--rule=geometric_median", "--geometric_median_epsilon=2", file},
      "geometric_median.epsilon is 2; allowed: in [1e-8, 1]");
  ExpectRefused({"--rule=mean", "--outliers_action=x", file},
                "--outliers_action is \"x\"; allowed: \"exclude\", \"warn\"");
  ExpectRefused({"--rule=adasum", "--step_scale=adascale", file}, "force");
  ExpectRefused({"--rule=mean", "--examples=0", file},
                "--examples is \"0\"; allowed: whole numbers from 1");
  ExpectRefused({"--rule=mean", "--accumulation=1,2,3", file},
                "--accumulation has 3 numbers for 2 rows");
  ExpectRefused({"--rule=mean", "--clip_norm=-1", file}, "clip_norm is -1");
  ExpectRefused({"--rule=mean", file, "stray"}, "\"stray\"");
  const RunResult forced =
      RunTool({"--rule=adasum", "--step_scale=adascale", "--force", file});
  EXPECT_EQ(forced.exit_code, 0) << forced.error;
  ExpectRefused({"--rule=mean", "--no_such_flag=1", file},
                "unknown flag \"--no_such_flag=1\"; allowed: ");
  ExpectRefused({"-rule=mean", file}, "unexpected argument \"-rule=mean\"");
  ExpectRefused({"--rule=mean", "--clip_norm=much", file},
                "--clip_norm is \"much\"; allowed: a number");
  ExpectRefused({"--rule=mean", "--force=perhaps", file},
                "--force is \"perhaps\"; allowed: true, false");
}

TEST(AggCombineErrorsTest, AnOutputThatCannotBeWrittenIsExitCodeOne) {
  const std::string file =
      "--gradients=" + WriteTestFile("good.npy", Npy({{1}}, "<f4"));
  const RunResult result =
      RunTool({"--rule=mean", file, "--output=no/such/folder/out.npy"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.error, HasSubstr("no/such/folder/out.npy"));
}

}  // namespace
}  // namespace agg
