#include "server/access/call_limits.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/caller_gate.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kPush[] = "agg.v1.Shard/Push";
constexpr char kPull[] = "agg.v1.Shard/Pull";
constexpr char kJoin[] = "agg.v1.Coordinator/Join";
constexpr char kWait[] = "agg.v1.Coordinator/WaitRound";
constexpr char kAttach[] = "agg.v1.ShardControl/Attach";
constexpr char kEvict[] = "agg.v1.Admin/EvictWorker";
constexpr int64_t kMiB = int64_t{1} << 20;

class CallLimiterTest : public ::testing::Test {
 protected:
  CallLimiterTest() {
    all_ = {8, 6, 3, 2.0, 40 * kMiB};
    own_ = {1, 2, 1, 1.0, 20 * kMiB};
  }

  // Holds what it takes; the limit that refuses, or "".
  std::string Take(const std::string& identity, const char* method) {
    if (limiter_ == nullptr) {
      limiter_ = std::make_unique<CallLimiter>(
          all_, std::map<std::string, CallLimits>{{"guest", own_}}, &clock_);
    }
    Caller caller;
    caller.identity = identity;
    caller.known = !identity.empty();
    DenialReason reason = DenialReason::kRole;
    auto share = limiter_->Take(caller, *FindMethod(method), &reason);
    if (share.ok()) {
      held_.push_back(*std::move(share));
      return "";
    }
    EXPECT_TRUE(IsLimitError(share.status())) << share.status();
    message_ = std::string(share.status().message());
    return std::string(DenialName(reason));
  }

  FakeClock clock_;
  CallLimits all_, own_;
  std::unique_ptr<CallLimiter> limiter_;
  std::vector<std::shared_ptr<void>> held_;
  std::string message_;
};

TEST_F(CallLimiterTest, AnIdentityHasItsOwnLimitAndOthersTheirs) {
  EXPECT_EQ(Take("guest", kPull), "");
  EXPECT_EQ(Take("guest", kPull), "");
  EXPECT_EQ(Take("guest", kPull), "max_streams");
  EXPECT_EQ(message_,
            "max_streams of identity \"guest\" is 2; allowed: 2 at a time; "
            "try again later");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Take("trainer", kPull), "");
  EXPECT_EQ(Take("trainer", kPull), "max_streams");
  EXPECT_THAT(message_, HasSubstr("max_streams of all callers is 6"));
}

TEST_F(CallLimiterTest, WhatEndsIsGivenBackToBoth) {
  EXPECT_EQ(Take("guest", kPull), "");
  EXPECT_EQ(Take("guest", kPull), "");
  held_.pop_back();
  EXPECT_EQ(Take("guest", kPull), "");
  held_.clear();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(Take("", kPull), "");
  EXPECT_EQ(Take("", kPull), "max_streams");
}

// A call that is refused by one account leaves nothing on the other.
TEST_F(CallLimiterTest, WhatIsRefusedTakesNothing) {
  for (int i = 0; i < 6; ++i) ASSERT_EQ(Take("", kPull), "");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Take("guest", kPull), "max_streams");
  held_.clear();
  EXPECT_EQ(Take("guest", kPull), "");
  EXPECT_EQ(Take("guest", kPull), "");
}

TEST_F(CallLimiterTest, WaitingCallsAndBytesAreBounded) {
  EXPECT_EQ(Take("guest", kWait), "");
  EXPECT_EQ(Take("guest", kWait), "max_waiting_calls");
  EXPECT_EQ(Take("guest", kPush), "");
  EXPECT_EQ(Take("guest", kPush), "");
  held_.clear();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Take("", kPush), "");
  EXPECT_EQ(Take("", kPush), "max_bytes_in_flight");
  EXPECT_EQ(Take("", "agg.v1.Coordinator/Observe"), "max_bytes_in_flight");
}

TEST_F(CallLimiterTest, JoinsComeAtARateAndInBursts) {
  all_.max_waiting_calls = 1000;
  all_.max_bytes_in_flight = 1000 * kMiB;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Take("", kJoin), "") << i;
  EXPECT_EQ(Take("", kJoin), "joins_per_second");
  EXPECT_EQ(message_,
            "joins_per_second of all callers is more than that; allowed: 2; "
            "try again later");
  clock_.Advance(absl::Milliseconds(499));
  EXPECT_EQ(Take("", kJoin), "joins_per_second");
  clock_.Advance(absl::Milliseconds(2));
  EXPECT_EQ(Take("", kJoin), "");
  EXPECT_EQ(Take("", kJoin), "joins_per_second");
  clock_.Advance(absl::Hours(1));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Take("", kJoin), "") << i;
  EXPECT_EQ(Take("", kJoin), "joins_per_second");
}

TEST_F(CallLimiterTest, OperatorsAndShardsGetInWhenAllElseIsTaken) {
  for (int i = 0; i < 6; ++i) ASSERT_EQ(Take("trainer", kPull), "");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Take("trainer", kWait), "");
  EXPECT_EQ(Take("operator", kEvict), "");
  EXPECT_EQ(Take("shard", kAttach), "");
  // What observers may call, too, is no place that is kept.
  EXPECT_EQ(Take("operator", kPull), "max_streams");
}

TEST_F(CallLimiterTest, WhatIsKeptIsBounded) {
  for (int i = 0; i < CallLimiter::kReservedStreams; ++i) {
    ASSERT_EQ(Take("", kAttach), "");
  }
  EXPECT_EQ(Take("", kAttach), "max_streams");
  EXPECT_EQ(Take("", kPull), "");
}

TEST(LimitsTest, DefaultsAreAboveWhatWorkersNeed) {
  for (const int workers : {1, 4, 512}) {
    const CallLimits own = ShareOf(DefaultLimits(workers));
    EXPECT_EQ(own.max_sessions, workers);
    // Attend, and a Push, a Pull and one of each that is being replaced.
    EXPECT_GE(own.max_streams, 5 * workers);
    EXPECT_GE(own.joins_per_second, workers);
    EXPECT_GE(own.max_bytes_in_flight, workers * 8 * kMiB);
  }
}

// A configuration's number may not have been checked yet.
TEST(LimitsTest, DefaultsOfImpossibleNumbersAreThoseOfTheNearestPossible) {
  const CallLimits none = DefaultLimits(0);
  const CallLimits most = DefaultLimits(1 << 20);
  EXPECT_EQ(none.max_streams, 1024);
  EXPECT_EQ(most.max_streams, 1024 + (1 << 24));
  for (const int workers : {-1, std::numeric_limits<int>::min()}) {
    const CallLimits limits = DefaultLimits(workers);
    EXPECT_EQ(limits.max_sessions, 0);
    EXPECT_EQ(limits.max_streams, none.max_streams);
    EXPECT_EQ(limits.max_waiting_calls, none.max_waiting_calls);
    EXPECT_EQ(limits.joins_per_second, none.joins_per_second);
    EXPECT_EQ(limits.max_bytes_in_flight, none.max_bytes_in_flight);
  }
  const CallLimits limits = DefaultLimits(std::numeric_limits<int>::max());
  EXPECT_EQ(limits.max_sessions, most.max_sessions);
  EXPECT_EQ(limits.max_streams, most.max_streams);
  EXPECT_EQ(limits.max_waiting_calls, most.max_waiting_calls);
  EXPECT_EQ(limits.max_bytes_in_flight, most.max_bytes_in_flight);
}

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
