#include <cstdint>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/protocol_version.h"
#include "server/rpc/shard_control_service.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNow = 1700000000000000;  // microseconds

absl::Status CheckEpoch(uint64_t epoch, int64_t now = kNow) {
  const ShardIdentity self{1, 2, "127.0.0.1:2", "0123", "cpu", 5, "", ""};
  v1::AttachRequest request;
  request.set_protocol_version(kProtocolVersion);
  request.set_ordinal(1);
  request.set_num_shards(2);
  request.set_config_fingerprint("0123");
  request.set_epoch(epoch);
  return CheckAttach(request, self, absl::FromUnixMicros(now));
}

TEST(AttachCheckTest, AnEpochIsNotFarAheadOfTheClock) {
  constexpr uint64_t kAhead = uint64_t{1} << 52;
  EXPECT_EQ(CheckEpoch(1), absl::OkStatus());
  EXPECT_EQ(CheckEpoch(kNow), absl::OkStatus());
  EXPECT_EQ(CheckEpoch(kNow + kAhead), absl::OkStatus());
  for (const uint64_t epoch :
       {uint64_t{0}, kNow + kAhead + 1, std::numeric_limits<uint64_t>::max()}) {
    const absl::Status status = CheckEpoch(epoch);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("epoch is " + std::to_string(epoch) +
                          "; allowed: 1 to 6203599627370496, "));
  }
}

// The number above the highest that anybody could have promised.
TEST(AttachCheckTest, AnEpochThatIsAboveAllIsAllowedAMomentLater) {
  constexpr uint64_t kHighest = kNow + (uint64_t{1} << 52);
  EXPECT_NE(CheckEpoch(kHighest + 1), absl::OkStatus());
  EXPECT_EQ(CheckEpoch(kHighest + 1, kNow + 1), absl::OkStatus());
}

// It has not been set yet, and the coordinator's is right.
TEST(AttachCheckTest, AClockOfTheYear1970DoesNoHarm) {
  EXPECT_EQ(CheckEpoch(kNow, 0), absl::OkStatus());
  EXPECT_EQ(CheckEpoch(kNow, -5), absl::OkStatus());
}

}  // namespace
}  // namespace agg
