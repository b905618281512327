// What a Join or a Commit may say, field by field. Ranks, counts and loss
// scales are in transcripts/join.txt and commit.txt.
#include "server/coordinator/coordinator_types.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

JoinCall Call(int32_t rank) {
  JoinCall call;
  call.rank = rank;
  call.manifest = Manifest{{{"w", {3}, "", false}}};
  return call;
}

std::string ErrorOf(const CommitInfo& info) {
  const absl::Status status = ValidateCommit(info);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(CallValidationTest, ChecksumsAreOnePerShardOrNone) {
  EXPECT_EQ(ValidateRowCrc32c({}, 2), absl::OkStatus());
  EXPECT_EQ(ValidateRowCrc32c({1, 2}, 2), absl::OkStatus());
  EXPECT_EQ(std::string(ValidateRowCrc32c({1}, 2).message()),
            "commit.row_crc32c is of 1 entries; allowed: none, or one per "
            "shard, 2");
}

TEST(CallValidationTest, OnlyOptionalTensorsMayBeAbsent) {
  Manifest manifest;
  manifest.tensors = {
      {"a", {1}, "", true}, {"b", {1}, "", false}, {"c", {1}, "", true}};
  EXPECT_EQ(ValidateAbsentTensors("", manifest), absl::OkStatus());
  EXPECT_EQ(ValidateAbsentTensors("\x05", manifest), absl::OkStatus());
  const auto error = [&](const std::string& bits) {
    const absl::Status status = ValidateAbsentTensors(bits, manifest);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(error("\x06"),
            "commit.absent_tensors is tensor 1; allowed: places of optional "
            "tensors of the manifest");
  EXPECT_THAT(error("\x08"), HasSubstr("is tensor 3;"));
  // It is kept with the row: no more bytes than there are tensors for.
  EXPECT_EQ(error(std::string(2, '\0')),
            "commit.absent_tensors is 2 bytes; allowed: 1 at most, a bit for "
            "each tensor of the manifest");
  EXPECT_THAT(error(std::string(size_t{8} << 20, '\0')),
              HasSubstr("is 8388608 bytes;"));
}

// A diverging worker has to be able to commit.
TEST(CallValidationTest, ALossMayBeAnything) {
  CommitInfo info;
  for (const double value : {-1.0, kInfinity, kNaN}) {
    info.loss = value;
    EXPECT_EQ(ValidateCommit(info), absl::OkStatus());
  }
}

TEST(CallValidationTest, ASumOfSquaresMayOverflowButNotBeNegative) {
  CommitInfo info;
  for (const double value : {0.0, 2.5, kInfinity, kNaN}) {
    info.row.micro_norm_squared_sum = value;
    EXPECT_EQ(ValidateCommit(info), absl::OkStatus()) << value;
  }
  info.row.micro_norm_squared_sum = -1.0;
  EXPECT_EQ(ErrorOf(info),
            "commit.micro_norm_squared_sum is -1; allowed: 0 or more; a sum of "
            "squares");
  info.row.micro_norm_squared_sum = -kInfinity;
  EXPECT_THAT(ErrorOf(info), HasSubstr("micro_norm_squared_sum is -inf"));
}

TEST(CallValidationTest, TextsAreBounded) {
  const std::string longest(kMaxTextBytes, 'x');
  EXPECT_EQ(ValidateText("reason", longest), absl::OkStatus());
  EXPECT_EQ(ValidateText("reason", longest + "x"),
            absl::InvalidArgumentError(
                "reason is 513 bytes; allowed: at most 512 bytes"));
  JoinCall call = Call(0);
  call.client = longest;
  EXPECT_EQ(ValidateJoin(call, 8), absl::OkStatus());
  call.client += "x";
  EXPECT_EQ(ValidateJoin(call, 8), ValidateText("client", call.client));
}

}  // namespace
}  // namespace agg
