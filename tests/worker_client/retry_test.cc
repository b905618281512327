#include "worker_client/retry.h"

#include "gtest/gtest.h"

namespace agg {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();
const grpc::Status kLost(grpc::StatusCode::UNAVAILABLE, "Socket closed");
const grpc::Status kRefused(grpc::StatusCode::UNAVAILABLE,
                            "Connection refused");
const grpc::Status kDamaged(grpc::StatusCode::DATA_LOSS, "checksum");

TEST(RetryPolicyTest, TriesAtOnceThenWithGrowingPauses) {
  RetryPolicy retries(absl::Seconds(3));
  EXPECT_EQ(retries.AfterFailure(kLost, kStart), absl::ZeroDuration());
  EXPECT_EQ(retries.AfterFailure(kLost, kStart), absl::Milliseconds(50));
  EXPECT_EQ(retries.AfterFailure(kLost, kStart), absl::Milliseconds(100));
  for (int i = 0; i < 5; ++i) retries.AfterFailure(kLost, kStart);
  EXPECT_EQ(retries.AfterFailure(kLost, kStart), absl::Milliseconds(500));
}

TEST(RetryPolicyTest, GivesUpAtTheWindowsEnd) {
  RetryPolicy retries(absl::Seconds(3));
  EXPECT_TRUE(retries.AfterFailure(kLost, kStart).has_value());
  EXPECT_TRUE(retries.AfterFailure(kLost, kStart + absl::Milliseconds(2999))
                  .has_value());
  EXPECT_FALSE(
      retries.AfterFailure(kLost, kStart + absl::Seconds(3)).has_value());
}

// Nobody listens yet, or again soon: a server that starts.
TEST(RetryPolicyTest, TriesARefusedConnectionUntilTheWindowsEnd) {
  RetryPolicy retries(absl::Seconds(3));
  for (int tenths = 0; tenths < 30; tenths += 5) {
    EXPECT_TRUE(
        retries
            .AfterFailure(kRefused, kStart + absl::Milliseconds(100 * tenths))
            .has_value());
  }
  EXPECT_FALSE(
      retries.AfterFailure(kRefused, kStart + absl::Seconds(3)).has_value());
}

TEST(RetryPolicyTest, ALossAfterAWorkingConnectionHasAWindowOfItsOwn) {
  RetryPolicy retries(absl::Seconds(3));
  absl::Time now = kStart;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(retries.AfterFailure(kLost, now, absl::Hours(1)),
              absl::ZeroDuration());
    EXPECT_EQ(retries.window_end(), now + absl::Seconds(3));
    EXPECT_EQ(retries.AfterFailure(kRefused, now + absl::Seconds(2)),
              absl::Milliseconds(50));
    now += absl::Hours(1);
  }
  EXPECT_FALSE(retries.AfterFailure(kLost, now).has_value());
}

TEST(RetryPolicyTest, AConnectionThatIsRefusedAtOnceDoesNotRenewTheWindow) {
  RetryPolicy retries(absl::Seconds(3));
  EXPECT_EQ(retries.window_end(), absl::InfiniteFuture());
  EXPECT_TRUE(retries.AfterFailure(kLost, kStart).has_value());
  EXPECT_FALSE(retries
                   .AfterFailure(kLost, kStart + absl::Seconds(3),
                                 absl::Milliseconds(999))
                   .has_value());
}

TEST(RetryPolicyTest, CountsDamage) {
  RetryPolicy retries(absl::Seconds(3));
  for (int i = 0; i < RetryPolicy::kMaxDamaged; ++i) {
    EXPECT_EQ(retries.AfterFailure(kDamaged, kStart), absl::ZeroDuration());
  }
  EXPECT_FALSE(retries.AfterFailure(kDamaged, kStart).has_value());
}

TEST(RetryPolicyTest, LetsOtherFailuresStand) {
  for (grpc::StatusCode code :
       {grpc::StatusCode::ABORTED, grpc::StatusCode::FAILED_PRECONDITION,
        grpc::StatusCode::NOT_FOUND, grpc::StatusCode::INVALID_ARGUMENT,
        grpc::StatusCode::DEADLINE_EXCEEDED}) {
    RetryPolicy retries(absl::Seconds(3));
    EXPECT_FALSE(
        retries.AfterFailure(grpc::Status(code, "no"), kStart).has_value());
  }
}

}  // namespace
}  // namespace agg
