// Long polls: each is answered once, and only when its answer is known.
#include "server/coordinator/outcome_waiters.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class OutcomeWaitersTest : public testing::Test {
 protected:
  using Call = OutcomeWaiters::Call;

  absl::StatusOr<uint64_t> Add(uint64_t round, uint64_t session,
                               Call call = Call::kWaitRound) {
    return waiters_.Add(
        call, {PushKind::kGradient, round, session},
        [this, session](const absl::StatusOr<RoundResult>& answer) {
          answered_.push_back(session);
          last_ = answer.status();
        });
  }
  // As a job whose rounds below `version` are known.
  void AnswerUpTo(uint64_t version) {
    waiters_
        .ReplyToKnown([version](const OutcomeQuery& query) {
          return query.round < version
                     ? OutcomeAnswer(std::optional<RoundResult>(RoundResult()))
                     : OutcomeAnswer(std::optional<RoundResult>());
        })
        .Run();
  }

  OutcomeWaiters waiters_;
  std::vector<uint64_t> answered_;  // sessions, in order
  absl::Status last_;
};

TEST_F(OutcomeWaitersTest, AnswersWhatIsKnownOnce) {
  ASSERT_TRUE(Add(/*round=*/0, /*session=*/1).ok());
  ASSERT_TRUE(Add(1, 2).ok());
  ASSERT_TRUE(Add(0, 3).ok());
  AnswerUpTo(0);
  EXPECT_THAT(answered_, IsEmpty());
  AnswerUpTo(1);
  EXPECT_THAT(answered_, ElementsAre(1, 3));
  EXPECT_EQ(last_, absl::OkStatus());
  AnswerUpTo(2);
  AnswerUpTo(2);
  EXPECT_THAT(answered_, ElementsAre(1, 3, 2));
}

TEST_F(OutcomeWaitersTest, FailsOneSessionOrAll) {
  ASSERT_TRUE(Add(0, 1).ok());
  ASSERT_TRUE(Add(5, 2).ok());
  ASSERT_TRUE(Add(9, 1).ok());
  ASSERT_TRUE(Add(0, 3).ok());
  waiters_.FailSession(1, absl::NotFoundError("expired")).Run();
  EXPECT_THAT(answered_, ElementsAre(1, 1));
  EXPECT_EQ(last_, absl::NotFoundError("expired"));
  waiters_.FailAll(absl::UnavailableError("draining")).Run();
  EXPECT_THAT(answered_, ElementsAre(1, 1, 2, 3));
  EXPECT_EQ(last_, absl::UnavailableError("draining"));
  AnswerUpTo(100);
  EXPECT_EQ(answered_.size(), 4u);
}

TEST_F(OutcomeWaitersTest, NothingIsCalledBeforeRun) {
  ASSERT_TRUE(Add(0, 1).ok());
  const DeferredCalls calls = waiters_.FailAll(absl::AbortedError("over"));
  EXPECT_FALSE(calls.empty());
  EXPECT_THAT(answered_, IsEmpty());
  calls.Run();
  EXPECT_THAT(answered_, ElementsAre(1));
}

TEST_F(OutcomeWaitersTest, WhoHasGoneIsForgotten) {
  const absl::StatusOr<uint64_t> first = Add(0, 1);
  const absl::StatusOr<uint64_t> second = Add(0, 2);
  ASSERT_TRUE(first.ok() && second.ok());
  waiters_.Remove(*first);
  EXPECT_EQ(waiters_.size(), 1u);
  AnswerUpTo(1);
  EXPECT_THAT(answered_, ElementsAre(2));
  waiters_.Remove(*first);
  waiters_.Remove(*second);
  waiters_.Remove(0);
  EXPECT_EQ(waiters_.size(), 0u);
}

TEST_F(OutcomeWaitersTest, ASessionHasABound) {
  for (size_t i = 0; i < OutcomeWaiters::kMaxPerSession; ++i) {
    ASSERT_TRUE(Add(0, 1).ok());
  }
  const absl::Status refused = Add(0, 1).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("allowed: 16"));
  EXPECT_TRUE(Add(0, 2).ok());
  EXPECT_TRUE(Add(0, 1, Call::kCommit).ok());
  AnswerUpTo(1);
  EXPECT_TRUE(Add(1, 1).ok());
}

TEST_F(OutcomeWaitersTest, ObserversHaveABoundInAll) {
  for (size_t i = 0; i < OutcomeWaiters::kMaxWaitRounds; ++i) {
    ASSERT_TRUE(Add(0, 0).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Add(0, 0).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(Add(0, 1).status()));
  // They do not keep a worker from committing.
  EXPECT_TRUE(Add(0, 1, Call::kCommit).ok());
}

}  // namespace
}  // namespace agg
