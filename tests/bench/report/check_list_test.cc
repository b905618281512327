#include "tests/bench/report/check_list.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

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

}  // namespace
}  // namespace agg
