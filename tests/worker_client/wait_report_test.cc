#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_client/membership.h"

namespace agg {
namespace {

using ::testing::ElementsAre;

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(WaitReportTest, SaysAReasonAtOnceAndAChangedOneLater) {
  std::vector<std::string> said;
  ClientOptions options;
  options.on_event = [&said](const ClientEvent& event) {
    said.push_back(event.message);
  };
  WaitReport report(options, ClientEvent::Kind::kWaiting);
  EXPECT_TRUE(report.Due(kStart));
  report.Say("a", kStart);
  const absl::Time early = kStart + WaitReport::kSayAgain - absl::Seconds(1);
  EXPECT_FALSE(report.Due(early));
  report.Say("b", early);
  EXPECT_THAT(said, ElementsAre("a"));
  const absl::Time next = kStart + WaitReport::kSayAgain;
  EXPECT_TRUE(report.Due(next));
  report.Say("b", next);
  EXPECT_THAT(said, ElementsAre("a", "b"));
}

// To find the reason may take a second.
TEST(WaitReportTest, AReasonThatHasNotChangedIsNotAskedForAllTheTime) {
  int times = 0;
  ClientOptions options;
  options.on_event = [&times](const ClientEvent&) { ++times; };
  WaitReport report(options, ClientEvent::Kind::kWaiting);
  report.Say("a", kStart);
  const absl::Time next = kStart + WaitReport::kSayAgain;
  report.Say("a", next);
  EXPECT_FALSE(report.Due(next + absl::Seconds(1)));
  EXPECT_EQ(times, 1);
}

TEST(WaitReportTest, WhereNobodyListensNothingIsDue) {
  const ClientOptions options;
  const WaitReport report(options, ClientEvent::Kind::kWaiting);
  EXPECT_FALSE(report.Due(kStart));
}

}  // namespace
}  // namespace agg
