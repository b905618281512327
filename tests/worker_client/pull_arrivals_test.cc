#include "worker_client/pull_arrivals.h"

#include <thread>

#include "gtest/gtest.h"

namespace agg {
namespace {

const ShardRouter& Router() {
  static const ShardRouter router =
      *ShardRouter::Create({{{"a", {kMaxSliceElements + 1}, "", false},
                             {"empty", {0}, "", false},
                             {"b", {3}, "", false}}},
                           2);
  return router;
}

TEST(PullArrivalsTest, ATensorIsThereWithItsLastSlice) {
  PullArrivals arrivals(&Router());
  EXPECT_FALSE(arrivals.Await(1, absl::InfinitePast()));
  arrivals.Begin({1, 0});
  EXPECT_TRUE(arrivals.Await(1, absl::InfinitePast()));  // has no elements
  arrivals.Land(1);
  arrivals.Land(1);
  EXPECT_FALSE(arrivals.Await(0, absl::InfinitePast()));
  std::thread waiter(
      [&] { EXPECT_TRUE(arrivals.Await(0, absl::InfiniteFuture())); });
  arrivals.Land(0);
  waiter.join();
  EXPECT_FALSE(arrivals.Await(2, absl::InfinitePast()));
}

TEST(PullArrivalsTest, WhatLandedStaysForTheSameVersionOfTheSamePast) {
  PullArrivals arrivals(&Router());
  arrivals.Begin({1, 0});
  arrivals.Land(2);
  arrivals.Begin({1, 0});
  EXPECT_TRUE(arrivals.landed(2));
  EXPECT_TRUE(arrivals.Await(2, absl::InfinitePast()));
  arrivals.Begin({1, 5});
  EXPECT_FALSE(arrivals.landed(2));
  EXPECT_FALSE(arrivals.Await(2, absl::InfinitePast()));
  arrivals.Land(2);
  arrivals.Begin({2, 5});
  EXPECT_FALSE(arrivals.landed(2));
}

// An origin on its way in a pipelined round of the epoch.
PullOrigin OnItsWay(uint64_t epoch) { return {1, 0, epoch, false}; }

TEST(PullArrivalsTest, WhatIsNotPublishedStaysInItsEpochAlone) {
  PullArrivals arrivals(&Router());
  arrivals.Begin(OnItsWay(7));
  arrivals.Land(2);
  arrivals.Begin(OnItsWay(7));
  EXPECT_TRUE(arrivals.landed(2));
  arrivals.Begin(OnItsWay(8));
  EXPECT_FALSE(arrivals.landed(2));
  arrivals.Land(2);
  arrivals.Begin({1, 0, 9});
  EXPECT_FALSE(arrivals.landed(2));
}

TEST(PullArrivalsTest, WhatIsPublishedWhileItComesStays) {
  PullArrivals arrivals(&Router());
  arrivals.Begin(OnItsWay(7));
  arrivals.Land(2);
  arrivals.Begin({1, 0, 7});
  EXPECT_TRUE(arrivals.landed(2));
  // Asked for once more, it is what it was.
  arrivals.Begin(OnItsWay(7));
  arrivals.Begin({1, 0, 9});
  EXPECT_TRUE(arrivals.landed(2));
  EXPECT_FALSE(arrivals.withdrawn());
}

TEST(PullArrivalsTest, ATensorIsWithdrawnIfItWasGiven) {
  PullArrivals arrivals(&Router());
  arrivals.Begin(OnItsWay(7));
  arrivals.Land(2);
  EXPECT_TRUE(arrivals.Await(1, absl::InfinitePast()));  // has no elements
  arrivals.Begin(OnItsWay(8));
  EXPECT_FALSE(arrivals.withdrawn());
  arrivals.Land(2);
  EXPECT_TRUE(arrivals.Await(2, absl::InfinitePast()));
  arrivals.Begin(OnItsWay(8));
  EXPECT_FALSE(arrivals.withdrawn());
  arrivals.Begin(OnItsWay(9));
  EXPECT_TRUE(arrivals.withdrawn());
}

TEST(PullArrivalsTest, TheEndEndsWaits) {
  PullArrivals arrivals(&Router());
  arrivals.Begin({1, 0});
  std::thread waiter(
      [&] { EXPECT_FALSE(arrivals.Await(2, absl::InfiniteFuture())); });
  arrivals.End();
  waiter.join();
}

}  // namespace
}  // namespace agg
