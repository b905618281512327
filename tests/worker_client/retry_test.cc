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

TEST(RetryPolicyTest, TriesARefusedConnectionOnce) {
  RetryPolicy retries(absl::Seconds(3));
  EXPECT_TRUE(retries.AfterFailure(kLost, kStart).has_value());
  EXPECT_TRUE(retries.AfterFailure(kRefused, kStart).has_value());
  EXPECT_FALSE(retries.AfterFailure(kRefused, kStart).has_value());
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
