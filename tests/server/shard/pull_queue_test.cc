#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/shard_engine.h"

namespace agg {
namespace {

using testing::ElementsAre;

TEST(PullQueueTest, AnswersThoseThatHaveAnAnswer) {
  PullQueue<int> queue;
  std::vector<std::string> heard;
  const auto listen = [&](const std::string& name) {
    return [&heard, name](absl::StatusOr<int> value) {
      heard.push_back(name + "=" + std::to_string(value.value_or(-1)));
    };
  };
  EXPECT_EQ(queue.Add({1, 5, false, listen("five")}), 1);
  EXPECT_EQ(queue.Add({1, 6, false, listen("six")}), 2);
  const int64_t seven = queue.Add({1, 7, false, listen("seven")});
  const auto answer = [](uint64_t published) {
    return [published](const PullQueue<int>::Request& request) {
      if (request.version > published) return PullQueue<int>::Answer();
      return PullQueue<int>::Answer(static_cast<int>(request.version));
    };
  };
  const auto none = queue.Resolve(answer(4));
  EXPECT_TRUE(none.empty());
  const auto two = queue.Resolve(answer(6));
  EXPECT_TRUE(heard.empty());  // the owner runs them
  for (const auto& closure : two) closure();
  EXPECT_THAT(heard, ElementsAre("five=5", "six=6"));
  queue.Remove(seven);
  EXPECT_TRUE(queue.Resolve(answer(9)).empty());
}

}  // namespace
}  // namespace agg
