// Long polls: each is answered once, and only when its answer is known.
#include "server/coordinator/outcome_waiters.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

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

// Streams that open and end in any order.

constexpr uint64_t kSession = 11;

class EventStreamsTest : public testing::Test {
 protected:
  uint64_t Open(int stream, uint64_t session = kSession) {
    return event_streams_.Open(
        session, [this, stream](const JobEvent&) { last_ = stream; });
  }
  // Which stream hears an event for the session.
  int Receiver() {
    last_ = 0;
    event_streams_.CallbackOf(kSession)(JobEvent());
    return last_;
  }

  EventStreams event_streams_;
  int last_ = 0;
};

TEST_F(EventStreamsTest, OneStream) {
  EXPECT_FALSE(event_streams_.Attends(kSession));
  EXPECT_EQ(event_streams_.CallbackOf(kSession), nullptr);
  const uint64_t stream = Open(1);
  EXPECT_TRUE(event_streams_.Attends(kSession));
  EXPECT_EQ(Receiver(), 1);
  EXPECT_EQ(event_streams_.Close(stream), kSession);
  EXPECT_FALSE(event_streams_.Attends(kSession));
  EXPECT_EQ(event_streams_.Close(stream), std::nullopt);
}

TEST_F(EventStreamsTest, TheFormerStreamEndsAfterTheNextHasBegun) {
  const uint64_t former = Open(1);
  const uint64_t next = Open(2);
  EXPECT_EQ(Receiver(), 2);
  EXPECT_EQ(event_streams_.Close(former), std::nullopt);
  EXPECT_EQ(Receiver(), 2);
  EXPECT_EQ(event_streams_.Close(next), kSession);
}

TEST_F(EventStreamsTest, TheNextStreamEndsFirst) {
  const uint64_t former = Open(1);
  const uint64_t next = Open(2);
  EXPECT_EQ(event_streams_.Close(next), kSession);
  EXPECT_FALSE(event_streams_.Attends(kSession));
  EXPECT_EQ(event_streams_.Close(former), std::nullopt);
}

TEST_F(EventStreamsTest, AForgottenSessionsStreamsMeanNothing) {
  const uint64_t stream = Open(1);
  Open(2, /*session=*/12);
  EXPECT_THAT(event_streams_.AllCallbacks(), SizeIs(2));
  event_streams_.Forget(kSession);
  EXPECT_EQ(event_streams_.Close(stream), std::nullopt);
  EXPECT_THAT(event_streams_.AllCallbacks(), SizeIs(1));
  event_streams_.ForgetAll();
  EXPECT_FALSE(event_streams_.Attends(12));
}

class KeptAnswersTest : public testing::Test {
 protected:
  void Add(const std::string& what) {
    answers_.Add(what, now_, [this, what](const absl::Status& status) {
      said_.push_back(what + ": " + std::string(status.message()));
    });
  }
  const absl::Time now_ = absl::FromUnixSeconds(1000);
  KeptAnswers answers_;
  std::vector<std::string> said_;
};

TEST_F(KeptAnswersTest, WhoComesMeanwhileWaitsForTheNextWord) {
  Add("a");
  answers_.Send();
  Add("b");
  answers_.Kept().Run();
  EXPECT_THAT(said_, ElementsAre("a: "));
  answers_.Send();
  answers_.NotKept();
  answers_.Kept().Run();  // of nothing
  EXPECT_EQ(answers_.size(), 1u);
  answers_.Send();
  answers_.Kept().Run();
  EXPECT_THAT(said_, ElementsAre("a: ", "b: "));
}

TEST_F(KeptAnswersTest, EachWaitEnds) {
  Add("rank 1 is evicted");
  answers_.Send();
  Add("the rule is set");
  answers_.Expire(now_ + absl::Seconds(29), "x").Run();
  EXPECT_THAT(said_, IsEmpty());
  answers_.Expire(now_ + absl::Seconds(30), "shard 1 is frozen").Run();
  ASSERT_THAT(said_, testing::SizeIs(2));
  EXPECT_THAT(said_[0],
              AllOf(HasSubstr("rank 1 is evicted, but not all shards"),
                    HasSubstr("shard 1 is frozen; the call may be repeated")));
  answers_.NotKept();
  EXPECT_EQ(answers_.size(), 0u);
}

TEST_F(KeptAnswersTest, AllAreRefusedAtTheEnd) {
  Add("a");
  answers_.Send();
  Add("b");
  answers_.Refuse(absl::UnavailableError("over")).Run();
  EXPECT_THAT(said_, ElementsAre("a: over", "b: over"));
}

}  // namespace
}  // namespace agg
