// Error feedback of int8 rows whose rounds outlive the end of an epoch: the
// parameters are those of a job in which nothing was lost (P27).
#include <functional>
#include <future>
#include <optional>

#include "kernels/row_format.h"
#include "tests/worker_client/fake_payload.h"
#include "tests/worker_client/recovery_fixture.h"
#include "worker_client/row_encoding.h"

namespace agg {
namespace {

using Kind = RoundOutcome::Kind;

class FeedbackRecoveryTest : public RecoveryTest {
 protected:
  FeedbackRecoveryTest() { job.set_push_dtype(v1::I8); }

  // One worker's rounds on `expected`, played without a job.
  void Play(float scale, bool included, Tensors* expected) {
    if (!feedback_.has_value()) {
      std::vector<int64_t> sizes;
      for (const auto& tensor : seed) {
        sizes.push_back(static_cast<int64_t>(tensor.size()));
      }
      feedback_.emplace(sizes);
    }
    const RowName row{false, next_round_++, 1, 0};
    feedback_->Begin(row);
    const Tensors gradient = Values(manifest, scale);
    for (size_t t = 0; t < gradient.size(); ++t) {
      const auto size = static_cast<int64_t>(gradient[t].size());
      std::string bytes(PayloadBytes(DType::kI8, size), 0);
      EncodeFloats(gradient[t], DType::kI8,
                   feedback_->ResidualOf(static_cast<int32_t>(t), 0, size),
                   &bytes[0]);
      const std::vector<float> sent = Widen(bytes, v1::I8);
      for (size_t i = 0; included && i < sent.size(); ++i) {
        (*expected)[t][i] -= sent[i];
      }
    }
    feedback_->Settle(row, included);
  }

  std::optional<ErrorFeedback> feedback_;
  uint64_t next_round_ = 0;
};

TEST_F(FeedbackRecoveryTest, ARowThatIsPushedAgainHasTheSameBytes) {
  Begin();
  Tensors expected = seed;
  ASSERT_TRUE(Step(0.5f).ok());
  Play(0.5f, true, &expected);
  for (const float scale : {0.3f, 0.7f}) {
    ExpectIncluded(StepThrough(scale, [&] { job.Lose(1); }));
    Play(scale, true, &expected);
    EXPECT_EQ(parameters, expected);
  }
}

TEST_F(FeedbackRecoveryTest, ARoundThatEndedWithoutTheRowKeepsTheResidual) {
  Begin();
  Tensors expected = seed;
  ASSERT_TRUE(Step(0.5f).ok());
  Play(0.5f, true, &expected);
  const auto outcome = StepThrough(0.3f, [&] { job.CloseWithout(); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->included);
  Play(0.3f, false, &expected);
  ASSERT_TRUE(Step(0.7f).ok());
  Play(0.7f, true, &expected);
  EXPECT_EQ(parameters, expected);
}

TEST_F(FeedbackRecoveryTest, AJobThatHasGoneBackBeginsWithNoResidual) {
  Begin();
  Tensors expected = seed;
  ASSERT_TRUE(Step(0.5f).ok());
  Play(0.5f, true, &expected);
  ASSERT_TRUE(Step(0.3f).ok());
  const auto outcome = StepThrough(0.7f, [&] { job.Rewind(1); });
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->kind, Kind::kRewound);
  EXPECT_EQ(parameters, expected);
  feedback_.reset();
  ASSERT_TRUE(Step(0.3f).ok());
  Play(0.3f, true, &expected);
  EXPECT_EQ(parameters, expected);
}

// It pulls and pushes nothing between the two, and rounds go on meanwhile, so
// that no number shows what has happened.
TEST_F(FeedbackRecoveryTest, ARewindBeforeAnotherLossIsHeardOf) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  ASSERT_TRUE(Step(0.3f).ok());
  NextEpoch([&] { job.Rewind(1); });
  ASSERT_TRUE(client->PullLatest(Write(&parameters)).ok());
  job.CloseWithout();
  NextEpoch([&] { job.Lose(1); });
  const auto version = client->PullLatest(Write(&parameters));
  ASSERT_TRUE(version.ok()) << version.status();
  ASSERT_EQ(*version, 2u);
  Tensors expected = parameters;
  ASSERT_TRUE(Step(0.7f).ok());
  Play(0.7f, true, &expected);
  EXPECT_EQ(parameters, expected);
}

// A round that was cancelled, and how it goes on: what the servers knew by then
// makes no difference to what is left out of the next row (ErrorFeedback).
class ResumedRoundTest : public FeedbackRecoveryTest {
 protected:
  // A round of g(0.3), cancelled at `moment`; then `meanwhile`, and it goes on.
  RoundOutcome Resumed(const std::function<void()>& moment,
                       const std::function<void()>& meanwhile) {
    const Tensors gradient = Values(manifest, 0.3f);
    RoundOperation round =
        client->MakeRound(Read(gradient), {}, Write(&parameters));
    auto pending =
        std::async(std::launch::async, [&] { return round.Outcome(); });
    moment();
    round.Cancel();
    EXPECT_TRUE(absl::IsCancelled(pending.get().status()));
    meanwhile();
    const auto outcome = client->ResumeRound(round).Outcome();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.value_or(RoundOutcome());
  }
  void AwaitCommit() {
    job.AwaitCommit(static_cast<int>(job.used().size()) + 2);
  }
  // The parameters are those of three rounds without any trouble.
  void Check(const RoundOutcome& outcome) {
    EXPECT_TRUE(outcome.included);
    EXPECT_EQ(outcome.version, 2u);
    ASSERT_TRUE(Step(0.7f).ok());
    Tensors expected = seed;
    for (const float scale : {0.5f, 0.3f, 0.7f}) Play(scale, true, &expected);
    EXPECT_EQ(parameters, expected);
    ASSERT_EQ(job.used().size(), 3u);
    for (const EpochJob::Used& used : job.used()) EXPECT_EQ(used.attempt, 0u);
  }
};

TEST_F(ResumedRoundTest, OfARoundThatHasEndedWithItsRow) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  job.Hold();
  Check(Resumed([&] { AwaitCommit(); },
                [&] {
                  job.CloseSilently();
                  job.Release();
                }));
}

TEST_F(ResumedRoundTest, OfARowThatAllShardsHave) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  job.Hold();
  Check(Resumed([&] { AwaitCommit(); }, [&] { job.Release(); }));
}

TEST_F(ResumedRoundTest, OfARowThatAShardLacks) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  const int frames = job.frames(0);
  job.StallPushes(1, true);
  Check(Resumed([&] { job.AwaitFrame(0, frames + 1); },
                [&] { job.StallPushes(1, false); }));
}

TEST_F(ResumedRoundTest, OfARowThatAShardHasLostSince) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  job.Hold();
  Check(Resumed([&] { AwaitCommit(); },
                [&] {
                  job.End(kReason);
                  job.Lose(1);
                  job.Release();
                  job.Open();
                }));
}

TEST_F(ResumedRoundTest, BeforeItHasBegun) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  const Tensors gradient = Values(manifest, 0.3f);
  RoundOperation round =
      client->MakeRound(Read(gradient), {}, Write(&parameters));
  round.Cancel();
  const auto outcome = client->ResumeRound(round).Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  Check(*outcome);
}

TEST_F(ResumedRoundTest, TwiceAndNoRoundOfAnotherKind) {
  Begin();
  ASSERT_TRUE(Step(0.5f).ok());
  const Tensors gradient = Values(manifest, 0.3f);
  job.Hold();
  RoundOperation round =
      client->StartRound(Read(gradient), {}, Write(&parameters));
  EXPECT_TRUE(absl::IsFailedPrecondition(client->ResumeRound(round).Wait()));
  AwaitCommit();
  round.Cancel();
  EXPECT_TRUE(absl::IsCancelled(round.Wait()));
  RoundOperation second = client->ResumeRound(round);
  second.Cancel();
  EXPECT_TRUE(absl::IsCancelled(second.Wait()));
  job.Release();
  const auto outcome = client->ResumeRound(second).Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  Check(*outcome);
  EXPECT_TRUE(absl::IsFailedPrecondition(client->ResumeRound({}).Wait()));
}

}  // namespace
}  // namespace agg
