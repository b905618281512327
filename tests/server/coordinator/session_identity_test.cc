// A session belongs to the identity that joined (P45), over epochs, too.
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/limit_error.h"
#include "server/coordinator/job_state.h"
#include "server/round/recovery.h"
#include "tests/server/coordinator/job_state_fixture.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

class SessionIdentityTest : public JobStateTest {
 protected:
  static JoinCall CallOf(const std::string& identity, int32_t rank = 0) {
    JoinCall call = Call(rank);
    call.identity = identity;
    return call;
  }

  JoinResult JoinAs(const JoinCall& call) {
    EXPECT_EQ(state_.CheckJoin(call), absl::OkStatus());
    last_change_ = state_.BeginJoin(call, next_session_++);
    return state_.FinishJoin(call, last_change_, At(0));
  }
};

TEST_F(SessionIdentityTest, ShardsAreToldWhoseItIs) {
  const JoinResult joined = JoinAs(CallOf("a"));
  EXPECT_EQ(last_change_.identity, "a");
  EXPECT_EQ(*state_.sessions().Owner(joined.session), "a");
  EXPECT_EQ(joined.replaced, 0);
}

TEST_F(SessionIdentityTest, AnotherIdentityCannotTakeTheRankOver) {
  JoinAs(CallOf("a"));
  const absl::Status status = state_.CheckJoin(CallOf("b"));
  EXPECT_TRUE(absl::IsPermissionDenied(status));
  EXPECT_THAT(status.message(), HasSubstr("rank is 0"));
  EXPECT_EQ(status.message().find("\"a\""), std::string::npos);
  EXPECT_TRUE(state_.CheckJoin(CallOf("b", 1)).ok());
  EXPECT_TRUE(state_.CheckJoin(CallOf("a")).ok());
}

// P46: so many ranks at a time; its own again, and after it has left, are none
// more.
TEST_F(SessionIdentityTest, AnIdentityHasSoManySessions) {
  const auto limited = [](const std::string& identity, int32_t rank) {
    JoinCall call = CallOf(identity, rank);
    call.max_own_sessions = 1;
    call.max_sessions = 2;
    return call;
  };
  JoinAs(limited("a", 0));
  const absl::Status own = state_.CheckJoin(limited("a", 1));
  EXPECT_TRUE(IsLimitError(own)) << own;
  EXPECT_THAT(std::string(own.message()),
              HasSubstr("max_sessions of identity \"a\" is 1; allowed: 1 at a "
                        "time"));
  EXPECT_EQ(state_.CheckJoin(limited("a", 0)), absl::OkStatus());
  JoinAs(limited("b", 1));
  const absl::Status all = state_.CheckJoin(limited("c", 2));
  EXPECT_TRUE(IsLimitError(all)) << all;
  EXPECT_THAT(std::string(all.message()),
              HasSubstr("max_sessions of all callers is 2"));
  EXPECT_EQ(state_.CheckJoin(CallOf("a", 1)).code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(SessionIdentityTest, AnotherIdentityCannotResumeIt) {
  const JoinResult joined = JoinAs(CallOf("a"));
  JoinCall thief = CallOf("b");
  thief.resume_session = joined.session;
  EXPECT_TRUE(absl::IsPermissionDenied(state_.CheckJoin(thief)));
}

TEST_F(SessionIdentityTest, AnAdminMayTakeItOver) {
  const JoinResult joined = JoinAs(CallOf("a"));
  JoinCall call = CallOf("b");
  call.may_take_over = true;
  const JoinResult taken = JoinAs(call);
  EXPECT_EQ(taken.replaced, joined.session);
  EXPECT_EQ(*state_.sessions().Owner(taken.session), "b");
  EXPECT_EQ(*state_.sessions().Owner(joined.session), "a");
  EXPECT_TRUE(absl::IsPermissionDenied(state_.CheckJoin(CallOf("a"))));
}

TEST_F(SessionIdentityTest, ARankThatWasLeftIsFree) {
  const JoinResult joined = JoinAs(CallOf("a"));
  JoinAs(CallOf("c", 1));
  ASSERT_TRUE(state_.Leave(joined.session).ok());
  EXPECT_TRUE(state_.CheckJoin(CallOf("b")).ok());
}

TEST_F(SessionIdentityTest, ItStaysSoInTheNextEpoch) {
  JobStart start;
  start.id = {kEpoch, 3};
  start.manifest = *Call(0).manifest;
  start.members = {{0, 17, 0, "host:1", "a"}};
  JobState next(options_, kEpoch + 1, At(0), std::move(start));
  EXPECT_EQ(*next.sessions().Owner(17), "a");
  EXPECT_TRUE(absl::IsPermissionDenied(next.CheckJoin(CallOf("b"))));
  JoinCall back = CallOf("a");
  back.resume_session = 17;
  EXPECT_TRUE(next.CheckJoin(back).ok());
  EXPECT_TRUE(next.ResumeJoin(back, At(1)).resumed);
}

}  // namespace
}  // namespace agg
