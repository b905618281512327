// Codes and messages of errors on their way through gRPC.
#include "proto/status_conversion.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

TEST(StatusConversionTest, EveryCodeSurvives) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
    EXPECT_EQ(static_cast<int>(ToGrpcStatus(status).error_code()), code);
  }
  // The largest that the enumeration can hold.
  EXPECT_EQ(FromGrpcStatus(grpc::Status(grpc::StatusCode(31), "odd")).code(),
            absl::StatusCode::kUnknown);
}

TEST(StatusConversionTest, LongMessagesAreCut) {
  const grpc::Status status =
      ToGrpcStatus(absl::InternalError(std::string(5000, 'x')));
  EXPECT_EQ(status.error_message().size(), 2048u);
  EXPECT_THAT(status.error_message(), HasSubstr("xxx..."));
}

}  // namespace
}  // namespace agg
