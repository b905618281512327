#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/caller_gate.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class OpenCallsTest : public ::testing::Test {
 protected:
  std::shared_ptr<void> Open(const std::string& identity) {
    OpenCall call;
    call.identity = identity;
    call.end = [this, identity](const absl::Status& status) {
      ended_.push_back(identity + ": " + std::string(status.message()));
    };
    return calls_.Add(std::move(call));
  }
  void Recheck(const std::string& denied) {
    calls_.Recheck([&](const OpenCall& call) {
      return call.identity == denied ? absl::UnauthenticatedError("denied")
                                     : absl::OkStatus();
    });
  }

  OpenCalls calls_;
  std::vector<std::string> ended_;
};

TEST_F(OpenCallsTest, EndsThoseWhoseCallersMayNotAnyMoreAndOnce) {
  const auto a = Open("a");
  const auto b = Open("b");
  const auto more = Open("b");
  Recheck("c");
  EXPECT_THAT(ended_, IsEmpty());
  Recheck("b");
  EXPECT_THAT(ended_, ElementsAre("b: denied", "b: denied"));
  Recheck("b");
  EXPECT_EQ(ended_.size(), 2u);
  EXPECT_EQ(calls_.size(), 1u);
}

TEST_F(OpenCallsTest, OneThatHasEndedIsNotEndedAgain) {
  auto a = Open("a");
  a = nullptr;
  Recheck("a");
  EXPECT_THAT(ended_, IsEmpty());
  EXPECT_EQ(calls_.size(), 0u);
}

// What ends a call may destroy what holds it.
TEST_F(OpenCallsTest, AnEndMayTakeTheCallAway) {
  std::shared_ptr<void> held;
  OpenCall call;
  call.end = [&](const absl::Status&) { held = nullptr; };
  held = calls_.Add(std::move(call));
  calls_.Recheck(
      [](const OpenCall&) { return absl::UnauthenticatedError("no"); });
  EXPECT_EQ(held, nullptr);
  EXPECT_EQ(calls_.size(), 0u);
}

}  // namespace
}  // namespace agg
