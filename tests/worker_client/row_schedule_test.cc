#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_client/shard_router.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

// Tensor a: slices 0, 1 and 2 (the last one of 5 elements); "empty": none;
// b: slice 3; c: slice 4.
Manifest TestManifest() {
  return {{{"a", {2 * kMaxSliceElements + 5}, "", false},
           {"empty", {0, 3}, "", false},
           {"b", {100}, "", false},
           {"c", {7}, "", true}}};
}

// What happens: tensors are given, or a shard takes and gets these slices.
struct Event {
  std::vector<int> give;
  int shard = -1;
  std::vector<int32_t> takes;
};
struct Case {
  const char* name;
  int num_shards;
  std::vector<Event> events;
};

Event Give(std::vector<int> tensors) { return {std::move(tensors), -1, {}}; }
Event Take(int shard, std::vector<int32_t> takes) {
  return {{}, shard, std::move(takes)};
}

std::vector<Case> Cases() {
  return {
      {"all at once, in the order of the manifest",
       1,
       {Give({0, 1, 2, 3}), Take(0, {0, 1, 2, 3, 4}), Take(0, {})}},
      {"backwards, each taken when it comes",
       1,
       {Take(0, {}), Give({3}), Take(0, {4}), Give({2}), Take(0, {3}),
        Give({1}), Take(0, {}), Give({0}), Take(0, {0, 1, 2})}},
      {"what gathers is taken in ascending order",
       1,
       {Give({3}), Give({0}), Take(0, {0, 1, 2, 4}), Give({2}), Take(0, {3})}},
      // Placed by size: 0 and 1 apart, then 3, 4 and 2 where there is less.
      {"each shard has its own",
       2,
       {Give({2}), Take(0, {3}), Take(1, {}), Give({0}), Take(1, {1, 2}),
        Take(0, {0}), Give({3, 1}), Take(1, {4}), Take(0, {})}},
      {"a shard without slices never gets one",
       9,
       {Give({0, 1, 2, 3}), Take(8, {}), Take(0, {0})}},
  };
}

TEST(RowScheduleTest, SlicesGoOutWhenTheirTensorIsThere) {
  for (const Case& test : Cases()) {
    SCOPED_TRACE(test.name);
    const ShardRouter router =
        *ShardRouter::Create(TestManifest(), test.num_shards);
    RowSchedule schedule(&router);
    for (const Event& event : test.events) {
      if (event.shard < 0) {
        schedule.Give(event.give);
      } else {
        EXPECT_EQ(schedule.Take(event.shard), event.takes);
      }
    }
  }
}

}  // namespace
}  // namespace agg
