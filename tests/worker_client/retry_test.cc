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

// It is tried for as long as a lost connection, and never at once.
TEST(RetryPolicyTest, BacksOffWhereALimitWasReached) {
  const grpc::Status limited(grpc::StatusCode::RESOURCE_EXHAUSTED,
                             "max_streams of all callers is 4; allowed: 4 at a "
                             "time; try again later");
  RetryPolicy retries(absl::Seconds(3));
  EXPECT_EQ(retries.AfterFailure(limited, kStart), absl::Milliseconds(100));
  EXPECT_EQ(retries.AfterFailure(limited, kStart), absl::Milliseconds(200));
  EXPECT_FALSE(retries.AfterFailure(limited, kStart + absl::Seconds(3)));
}

TEST(RetryPolicyTest, GivesUpWhereAShardHasNoMemory) {
  RetryPolicy retries(absl::Seconds(3));
  EXPECT_FALSE(retries.AfterFailure(
      {grpc::StatusCode::RESOURCE_EXHAUSTED, "rows 4.0 MiB"}, kStart));
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

TEST(RecoveryWindowTest, PausesGrowToASecond) {
  RecoveryWindow window(absl::Minutes(15), absl::Seconds(4));
  EXPECT_EQ(window.end(), absl::InfiniteFuture());
  const absl::Duration none = absl::ZeroDuration();
  EXPECT_EQ(window.AfterFailure(kStart, none), none);
  EXPECT_EQ(window.AfterFailure(kStart, none), absl::Milliseconds(100));
  EXPECT_EQ(window.AfterFailure(kStart, none), absl::Milliseconds(200));
  for (int i = 0; i < 5; ++i) window.AfterFailure(kStart, none);
  EXPECT_EQ(window.AfterFailure(kStart, none), absl::Seconds(1));
}

TEST(RecoveryWindowTest, EndsThoughTheJobComesBackNowAndThen) {
  RecoveryWindow window(absl::Minutes(15), absl::Seconds(4));
  for (int i = 0; i < 900; i += 3) {
    EXPECT_TRUE(window.AfterFailure(kStart + absl::Seconds(i), absl::Seconds(3))
                    .has_value());
    EXPECT_EQ(window.end(), kStart + absl::Minutes(15));
  }
  EXPECT_FALSE(window.AfterFailure(kStart + absl::Minutes(15), absl::Seconds(3))
                   .has_value());
}

TEST(RecoveryWindowTest, AJobThatHasWorkedHasANewWindow) {
  RecoveryWindow window(absl::Minutes(15), absl::Seconds(4));
  window.AfterFailure(kStart, absl::ZeroDuration());
  const absl::Time later = kStart + absl::Hours(1);
  EXPECT_EQ(window.AfterFailure(later, absl::Hours(1)), absl::ZeroDuration());
  EXPECT_EQ(window.end(), later + absl::Minutes(15));
}

}  // namespace
}  // namespace agg
