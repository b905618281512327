#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/agg.pb.h"
#include "server/rpc/stream_pulls.h"

namespace agg {
namespace {

using testing::HasSubstr;

grpc::ByteBuffer Bytes(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

v1::PullRequest GoodRequest() {
  v1::PullRequest request;
  request.set_epoch(7);
  request.set_version(3);
  request.set_latest(true);
  request.set_dtype(v1::BF16);
  return request;
}

TEST(PullQueryTest, TakesEveryField) {
  const absl::StatusOr<PullQuery> query =
      ParsePullQuery(Bytes(GoodRequest().SerializeAsString()));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->epoch, 7u);
  EXPECT_EQ(query->version, 3u);
  EXPECT_TRUE(query->latest);
  EXPECT_EQ(query->dtype, DType::kBF16);
}

TEST(PullQueryTest, TheRequestMayLieInSeveralSlices) {
  const std::string bytes = GoodRequest().SerializeAsString();
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, 1)),
                                grpc::Slice(bytes.substr(1))};
  EXPECT_EQ(ParsePullQuery(grpc::ByteBuffer(slices, 2))->version, 3u);
}

TEST(PullQueryTest, TakesSoManyFirstSlicesAndNoMore) {
  v1::PullRequest request = GoodRequest();
  for (int i = 0; i < kMaxFirstSlices; ++i) {
    request.add_first_slices(0xffffffffu - static_cast<uint32_t>(i));
  }
  const absl::StatusOr<PullQuery> query =
      ParsePullQuery(Bytes(request.SerializeAsString()));
  ASSERT_TRUE(query.ok()) << query.status();
  EXPECT_EQ(query->first_slices.size(), size_t{kMaxFirstSlices});
  EXPECT_EQ(query->first_slices[1], 0xfffffffeu);
  request.add_first_slices(1);
  EXPECT_EQ(ParsePullQuery(Bytes(request.SerializeAsString())).status(),
            absl::InvalidArgumentError(
                "first_slices has 201 slices; allowed: at most 200"));
}

TEST(PullQueryTest, RefusesOtherBytesAndLongOnes) {
  for (const std::string& bytes :
       {std::string("junk"), std::string(2000, '\0'),
        GoodRequest().SerializeAsString() + std::string(2000, 'x')}) {
    EXPECT_EQ(ParsePullQuery(Bytes(bytes)).status(),
              absl::InvalidArgumentError("malformed PullRequest"));
  }
}

TEST(PullQueryTest, RefusesDTypesThatDoNotExist) {
  for (const int dtype : {0, 4, 257, -1}) {
    v1::PullRequest request = GoodRequest();
    request.set_dtype(static_cast<v1::DType>(dtype));
    const absl::Status status =
        ParsePullQuery(Bytes(request.SerializeAsString())).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(
        std::string(status.message()),
        HasSubstr("dtype is " + std::to_string(dtype) + "; allowed: F32 (1)"));
  }
}

}  // namespace
}  // namespace agg
