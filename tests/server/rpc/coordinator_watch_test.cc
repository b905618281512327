#include <optional>

#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/rpc/shard_control_service.h"
#include "server/rpc/shard_link.h"

namespace agg {
namespace {

constexpr uint64_t kLife = 0xabc;

class CoordinatorWatchTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  CoordinatorWatch watch_{&clock_};
};

TEST_F(CoordinatorWatchTest, AbandonedAfterFiveSecondsOnce) {
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  watch_.Begin(7, kLife);
  clock_.Advance(2 * kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  watch_.End(7);
  clock_.Advance(kResumeTime - absl::Milliseconds(1));
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_EQ(watch_.TakeAbandoned(), std::optional<uint64_t>(7));
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(7, kLife)));
}

TEST_F(CoordinatorWatchTest, ComesBackInTime) {
  watch_.Begin(7, kLife);
  watch_.End(7);
  clock_.Advance(kResumeTime / 2);
  EXPECT_TRUE(watch_.Resume(7, kLife).ok());
  clock_.Advance(kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  watch_.End(7);
  clock_.Advance(kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::optional<uint64_t>(7));
}

// The shard may see the end of the broken stream long after the coordinator.
TEST_F(CoordinatorWatchTest, ComesBackBeforeTheBrokenStreamEnds) {
  watch_.Begin(7, kLife);
  EXPECT_TRUE(watch_.Resume(7, kLife).ok());
  watch_.End(7);
  clock_.Advance(kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
}

TEST_F(CoordinatorWatchTest, OnlyTheOneWhoBeganItResumes) {
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(0, 0)));
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(7, kLife)));
  watch_.Begin(7, kLife);
  watch_.End(7);
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(7, kLife + 1)));
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(8, kLife)));
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(6, kLife)));
  EXPECT_TRUE(watch_.Resume(7, kLife).ok());
}

TEST_F(CoordinatorWatchTest, OneWithoutALifeDoesNotComeBack) {
  watch_.Begin(7, 0);
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  watch_.End(7);
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(7, 0)));
  EXPECT_EQ(watch_.TakeAbandoned(), std::optional<uint64_t>(7));
}

TEST_F(CoordinatorWatchTest, AFormerEpochsStreamChangesNothing) {
  watch_.Begin(7, kLife);
  watch_.Begin(8, kLife);
  watch_.End(7);
  clock_.Advance(kResumeTime);
  EXPECT_EQ(watch_.TakeAbandoned(), std::nullopt);
  EXPECT_TRUE(absl::IsAborted(watch_.Resume(7, kLife)));
}

}  // namespace
}  // namespace agg
