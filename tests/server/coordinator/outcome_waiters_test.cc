// Long polls: each is answered once, and only when its answer is known.
#include "server/coordinator/outcome_waiters.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class OutcomeWaitersTest : public testing::Test {
 protected:
  void Add(uint64_t round, uint64_t session) {
    waiters_.Add({PushKind::kGradient, round, session},
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
  Add(/*round=*/0, /*session=*/1);
  Add(1, 2);
  Add(0, 3);
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
  Add(0, 1);
  Add(5, 2);
  Add(9, 1);
  Add(0, 3);
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
  Add(0, 1);
  const DeferredCalls calls = waiters_.FailAll(absl::AbortedError("over"));
  EXPECT_FALSE(calls.empty());
  EXPECT_THAT(answered_, IsEmpty());
  calls.Run();
  EXPECT_THAT(answered_, ElementsAre(1));
}

}  // namespace
}  // namespace agg
