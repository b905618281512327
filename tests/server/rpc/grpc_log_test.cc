#include <gmock/gmock.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <string>

#include "server/rpc/transport_settings.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr absl::Time kStart = absl::FromUnixSeconds(1000);

TEST(LineLimitTest, SoManyInAPeriodAndThenTheirNumber) {
  LineLimit limit;
  int dropped = -1;
  for (int i = 0; i < LineLimit::kMost; ++i) {
    ASSERT_TRUE(limit.Take(kStart, &dropped));
    ASSERT_EQ(dropped, 0);
  }
  const absl::Time end = kStart + LineLimit::kPeriod;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(limit.Take(end - absl::Nanoseconds(1), &dropped));
  }
  ASSERT_TRUE(limit.Take(end, &dropped));
  EXPECT_EQ(dropped, 1000);
  ASSERT_TRUE(limit.Take(end, &dropped));
  EXPECT_EQ(dropped, 0);
}

TEST(LineLimitTest, AClockThatIsSetBack) {
  LineLimit limit;
  int dropped = 0;
  for (int i = 0; i <= LineLimit::kMost; ++i) limit.Take(kStart, &dropped);
  EXPECT_TRUE(limit.Take(kStart - absl::Hours(1), &dropped));
  EXPECT_EQ(dropped, 1);
}

TEST(GrpcLogTest, ErrorsAreWarningsOfTheLog) {
  gpr_log_verbosity_init();  // as grpc_init does
  LogGrpcErrors();
  testing::internal::CaptureStderr();
  gpr_log("a/b/file.cc", 7, GPR_LOG_SEVERITY_ERROR, "Handshake of %s\n", "x");
  gpr_log("a/b/file.cc", 8, GPR_LOG_SEVERITY_INFO, "nothing");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr(" W "));
  EXPECT_THAT(log, HasSubstr("gRPC: Handshake of x (file.cc:7)"));
  EXPECT_THAT(log, Not(HasSubstr("nothing")));
}

// GRPC_VERBOSITY and GRPC_TRACE.
TEST(GrpcLogTest, WhatSomebodyAsksForIsLoggedToo) {
  LogGrpcErrors();
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
  testing::internal::CaptureStderr();
  for (int i = 0; i <= LineLimit::kMost; ++i) {
    gpr_log("a/file.cc", i, GPR_LOG_SEVERITY_DEBUG, "step");
  }
  gpr_log("a/file.cc", 99, GPR_LOG_SEVERITY_INFO, "of %s\n", "interest");
  const std::string log = testing::internal::GetCapturedStderr();
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
  EXPECT_THAT(log, HasSubstr(" I "));
  EXPECT_THAT(log, HasSubstr("gRPC: step (file.cc:10)"));
  EXPECT_THAT(log, HasSubstr("gRPC: of interest (file.cc:99)"));
}

}  // namespace
}  // namespace agg
