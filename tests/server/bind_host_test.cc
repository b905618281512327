#include "server/bind_host.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(BindHostTest, LoopbackByDefault) {
  EXPECT_EQ(BindHost({"10.0.0.1", 5}, ""), "127.0.0.1");
  EXPECT_EQ(BindHost({"::1", 5}, ""), "::1");
  EXPECT_EQ(BindHost({"10.0.0.1", 5}, "0.0.0.0"), "0.0.0.0");
}

TEST(BindHostTest, BeyondLoopbackItTakesTlsOrThatItIsMeant) {
  EXPECT_TRUE(CheckBind("127.0.0.1", /*tls=*/false, /*insecure=*/false).ok());
  EXPECT_TRUE(CheckBind("::1", false, false).ok());
  EXPECT_TRUE(CheckBind("0.0.0.0", true, false).ok());
  EXPECT_TRUE(CheckBind("0.0.0.0", false, true).ok());
  const absl::Status refused = CheckBind("0.0.0.0", false, false);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("--bind is \"0.0.0.0\"; allowed: "),
                    HasSubstr("security { insecure: true }")));
}

TEST(BindHostTest, InsecureIsWhatOthersReachWithoutTls) {
  EXPECT_TRUE(IsInsecure("10.0.0.1", false));
  EXPECT_FALSE(IsInsecure("10.0.0.1", true));
  EXPECT_FALSE(IsInsecure("127.0.0.1", false));
}

TEST(BindHostTest, TheLogSaysIt) {
  testing::internal::CaptureStderr();
  WarnAboutBind({"10.0.0.1", 5}, "0.0.0.0", /*tls=*/false);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("insecure: listening on 0.0.0.0 without TLS"));
  testing::internal::CaptureStderr();
  WarnAboutBind({"10.0.0.1", 5}, "127.0.0.1", false);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(Not(HasSubstr("insecure")), HasSubstr("without --bind")));
  testing::internal::CaptureStderr();
  WarnAboutBind({"10.0.0.1", 5}, "0.0.0.0", /*tls=*/true);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace agg
