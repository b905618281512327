// Who may attach a shard, and until when (P21).
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/rpc/shard_control_service.h"

namespace agg {
namespace {

using testing::HasSubstr;

constexpr uint64_t kFirst = 0xabc;
constexpr uint64_t kSecond = 0xdef;

TEST(ShardClaimTest, AnotherLifeIsRefusedByName) {
  ShardClaim claim;
  ASSERT_TRUE(claim.Take(kFirst, "host-a:1").ok());
  for (const uint64_t other : {kSecond, uint64_t{0}}) {
    const absl::Status refusal = claim.Take(other, "host-b:1");
    EXPECT_TRUE(absl::IsFailedPrecondition(refusal));
    EXPECT_THAT(refusal.message(), HasSubstr("host-a:1"));
    EXPECT_THAT(refusal.message(), HasSubstr("0000000000000abc"));
  }
  claim.Release(kSecond);  // holds nothing
  EXPECT_FALSE(claim.Take(kSecond, "host-b:1").ok());
  claim.Release(kFirst);
  EXPECT_TRUE(claim.Take(kSecond, "host-b:1").ok());
}

// The next epoch's stream may begin before the end of the last one's is seen.
TEST(ShardClaimTest, ALifeHoldsUntilItsLastStreamEnds) {
  ShardClaim claim;
  ASSERT_TRUE(claim.Take(kFirst, "host-a:1").ok());
  ASSERT_TRUE(claim.Take(kFirst, "host-a:1").ok());
  claim.Release(kFirst);
  EXPECT_FALSE(claim.Take(kSecond, "host-b:1").ok());
  claim.Release(kFirst);
  EXPECT_TRUE(claim.Take(kSecond, "host-b:1").ok());
}

TEST(ShardClaimTest, LifeZeroHoldsNothing) {
  ShardClaim claim;
  ASSERT_TRUE(claim.Take(0, "").ok());
  EXPECT_TRUE(claim.Take(kFirst, "host-a:1").ok());
  claim.Release(0);
  EXPECT_FALSE(claim.Take(kSecond, "host-b:1").ok());
}

TEST(ShardClaimTest, AnEpochIsOfOneLifeAlsoWhenItsClaimHasEnded) {
  ShardClaim claim;
  EXPECT_TRUE(claim.CheckPromise(7, kFirst).ok());
  claim.Promise(7, kFirst);
  EXPECT_TRUE(claim.CheckPromise(7, kFirst).ok());
  const absl::Status status = claim.CheckPromise(7, kSecond);
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(),
            "epoch 7 is promised to another coordinator (life "
            "0000000000000abc)");
  EXPECT_TRUE(claim.CheckPromise(8, kSecond).ok());
}

}  // namespace
}  // namespace agg
