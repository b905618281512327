// Pulling versions: P10, P11 and ARCHITECTURE.md, decision 12.
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/published_version.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::HasSubstr;

using PullReply = Reply<absl::StatusOr<PublishedVersion>>;

class PullingTest : public testing::Test {
 protected:
  PullingTest()
      : job_(MakeClusterOptions(2, 1), MakeManifest({{40}, {7}}), 1) {}

  ShardEngine* engine() { return job_.cluster.engine(0); }
  uint64_t epoch() { return job_.workers[0].joined().epoch; }

  RunningJob job_;
};

TEST_F(PullingTest, WaitsForAVersionThatIsNotPublished) {
  PullReply next;
  PullReply cancelled;
  EXPECT_NE(engine()->Pull(epoch(), 1, false, next.callback()), 0);
  engine()->CancelPull(engine()->Pull(epoch(), 1, false, cancelled.callback()));
  EXPECT_FALSE(next.called());
  job_.RunRound(0);
  ASSERT_EQ(next.num_calls(), 1);
  EXPECT_EQ(next.Get()->version, 1u);
  PullReply after_next;
  engine()->Pull(epoch(), 2, false, after_next.callback());
  EXPECT_FALSE(after_next.called());
  job_.RunRound(1);
  EXPECT_EQ(after_next.Get()->version, 2u);
  EXPECT_FALSE(cancelled.called());
}

// Else its memory would outlive the job beside the next one's (decision 13).
TEST_F(PullingTest, WhatIsBeingPulledIsWantedBackWhenItIsForgotten) {
  PullReply reply;
  engine()->Pull(epoch(), 0, false, reply.callback());
  int num_calls = 0;
  reply.Get()->snapshot->AddRevokeCallback([&] { ++num_calls; });
  engine()->Lose(epoch(), absl::UnavailableError("over"));
  EXPECT_EQ(num_calls, 0);  // it may still be read to its end
  ASSERT_EQ(engine()->Attach(epoch() + 1, nullptr).status(), absl::OkStatus());
  EXPECT_EQ(num_calls, 0);  // the version stays
  Phase unseeded;
  unseeded.kind = PhaseKind::kRecover;
  unseeded.epoch = epoch() + 1;
  unseeded.recover.unseeded = true;
  ASSERT_EQ(engine()->RunPhase(unseeded).status(), absl::OkStatus());
  EXPECT_EQ(num_calls, 1);
}

TEST_F(PullingTest, WaitsForTheSeed) {
  LocalCluster cluster(MakeClusterOptions(1, 1));
  LocalWorker worker = Joined(&cluster, 0, job_.manifest);
  PullReply reply;
  cluster.engine(0)->Pull(worker.joined().epoch, 0, false, reply.callback());
  EXPECT_FALSE(reply.called());
  ASSERT_EQ(worker.Seed(RandomTensors(job_.manifest, 1)), absl::OkStatus());
  EXPECT_TRUE(reply.Get().ok());
}

TEST_F(PullingTest, IsExactAndSaysWhatIsGone) {
  for (uint64_t round = 0; round < 3; ++round) job_.RunRound(round);
  for (uint64_t version : {2, 3}) {
    PullReply reply;
    engine()->Pull(epoch(), version, false, reply.callback());
    EXPECT_EQ(reply.Get()->version, version);
  }
  PullReply gone;
  engine()->Pull(epoch(), 1, false, gone.callback());
  EXPECT_TRUE(absl::IsOutOfRange(gone.Get().status()));
  EXPECT_THAT(gone.Get().status().message(),
              HasSubstr("version 1 is gone; current version 3"));
  PullReply latest;
  engine()->Pull(0, 0, true, latest.callback());
  EXPECT_EQ(latest.Get()->version, 3u);
  PullReply stale;
  engine()->Pull(epoch() - 1, 3, false, stale.callback());
  EXPECT_TRUE(absl::IsAborted(stale.Get().status()));
}

// P28: only the next version is worth waiting for.
TEST_F(PullingTest, RefusesAVersionAboveTheNextOne) {
  for (const uint64_t version : {uint64_t{2}, ~uint64_t{0}}) {
    PullReply ahead;
    EXPECT_EQ(engine()->Pull(epoch(), version, false, ahead.callback()), 0);
    EXPECT_TRUE(absl::IsOutOfRange(ahead.Get().status()));
    EXPECT_THAT(ahead.Get().status().message(), HasSubstr("current version 0"));
  }
  LocalCluster unseeded(MakeClusterOptions(1, 1));
  PullReply early;
  unseeded.engine(0)->Pull(0, 1, false, early.callback());
  EXPECT_TRUE(absl::IsOutOfRange(early.Get().status()));
}

TEST_F(PullingTest, TheJobsEndEndsPullsAndPushes) {
  PullReply waiting;
  engine()->Pull(epoch(), 1, false, waiting.callback());
  ASSERT_EQ(job_.workers[0].Leave(), absl::OkStatus());
  job_.cluster.Settle();
  ASSERT_TRUE(job_.cluster.coordinator()->finished());
  ASSERT_TRUE(waiting.called());
  EXPECT_TRUE(absl::IsFailedPrecondition(waiting.Get().status()));
  EXPECT_EQ(waiting.Get().status().message(),
            "the job has finished at version 0");
  for (int ordinal = 0; ordinal < 2; ++ordinal) {
    PullReply late;
    job_.cluster.engine(ordinal)->Pull(0, 5, false, late.callback());
    EXPECT_TRUE(absl::IsFailedPrecondition(late.Get().status()));
    PullReply last;  // the last version stays
    job_.cluster.engine(ordinal)->Pull(0, 0, false, last.callback());
    EXPECT_TRUE(last.Get().ok());
  }
}

// max_rounds ends the job while its workers are there.
TEST(PullingFinishedJobTest, APushIsRefusedRatherThanAcknowledged) {
  ClusterOptions options = MakeClusterOptions(2, 1);
  options.coordinator.max_rounds = 1;
  RunningJob job(options, MakeManifest({{40}, {7}}), 1);
  job.RunRound(0);
  ASSERT_TRUE(job.cluster.coordinator()->finished());
  const absl::Status refusal =
      job.workers[0].Push(1, RandomTensors(job.manifest, 2));
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal));
  EXPECT_THAT(refusal.message(),
              HasSubstr("the job has finished at version 1"));
  // Late for a round before: dropped, and acknowledged as closed (P12).
  EXPECT_EQ(job.workers[0].Push(0, RandomTensors(job.manifest, 2)),
            absl::OkStatus());
}

TEST_F(PullingTest, TheVersionBeforeKeepsItsBytes) {
  const Tensors seed = RandomTensors(job_.manifest, 1);
  EXPECT_EQ(*job_.cluster.Pull(0), seed);
  job_.RunRound(0);
  EXPECT_EQ(*job_.cluster.Pull(0), seed);
  EXPECT_NE(*job_.cluster.Pull(1), seed);
}

TEST_F(PullingTest, ASlowPullerKeepsItsBytesUntilItIsRevoked) {
  PullReply reply;
  engine()->Pull(0, 0, false, reply.callback());
  std::shared_ptr<const Snapshot> slow = reply.Get()->snapshot;
  reply = PullReply();
  bool revoked = false;
  slow->AddRevokeCallback([&] {
    revoked = true;
    slow = nullptr;
  });
  for (uint64_t round = 0; round < 2; ++round) {
    job_.RunRound(round);
    EXPECT_FALSE(revoked);
  }
  job_.RunRound(2);
  EXPECT_TRUE(revoked);
  EXPECT_EQ(engine()->Status().revoked_snapshots, 1);
  EXPECT_EQ(job_.cluster.engine(1)->Status().revoked_snapshots, 0);
  for (uint64_t round = 3; round < 6; ++round) job_.RunRound(round);
  EXPECT_EQ(engine()->Status().version, 6u);
}

TEST_F(PullingTest, CallbacksRunWithoutLocks) {
  absl::StatusOr<FrameLanding> landing = absl::UnknownError("");
  PullReply second;
  engine()->Pull(0, 1, false, [&](absl::StatusOr<PublishedVersion>) {
    // Would lock itself out otherwise.
    engine()->Pull(0, 1, false, second.callback());
    Phase repeat;
    repeat.kind = PhaseKind::kPublish;
    repeat.epoch = epoch();
    repeat.round = 0;
    repeat.publish.version = 1;
    EXPECT_TRUE(engine()->RunPhase(repeat).ok());
  });
  job_.RunRound(0);
  EXPECT_TRUE(second.called());
}

TEST_F(PullingTest, ALostEpochEndsPulls) {
  PullReply waiting;
  engine()->Pull(0, 1, false, waiting.callback());
  engine()->Lose(epoch() + 1, absl::UnavailableError("another epoch"));
  EXPECT_FALSE(waiting.called());
  engine()->Lose(0, absl::UnavailableError("shutting down"));
  EXPECT_EQ(waiting.Get().status(), absl::UnavailableError("shutting down"));
  PullReply late;
  engine()->Pull(0, 0, false, late.callback());
  EXPECT_TRUE(absl::IsUnavailable(late.Get().status()));
}

// What may be read of a version that is being written, and who hears of it.

class VersionProgressTest : public testing::Test {
 protected:
  VersionProgress progress_;
  std::vector<absl::Status> heard_;

  void Listen() {
    progress_.Listen(
        [this](const absl::Status& status) { heard_.push_back(status); });
  }
};

TEST_F(VersionProgressTest, TheEndComesWithThePublicationAlone) {
  Listen();
  EXPECT_FALSE(progress_.Allows(1, false));
  progress_.Advance(2);
  EXPECT_TRUE(progress_.Allows(2, false));
  EXPECT_FALSE(progress_.Allows(3, false));
  progress_.Advance(3);
  EXPECT_TRUE(progress_.Allows(3, false));
  EXPECT_FALSE(progress_.Allows(3, true));
  progress_.Publish();
  EXPECT_TRUE(progress_.Allows(3, true));
  EXPECT_EQ(heard_.size(), 4u);  // at once, and three changes
  for (const absl::Status& status : heard_) EXPECT_TRUE(status.ok());
}

TEST_F(VersionProgressTest, AfterAFailureNothingMayBeRead) {
  progress_.Advance(3);
  Listen();
  progress_.Fail(absl::AbortedError("over"));
  EXPECT_FALSE(progress_.Allows(1, false));
  EXPECT_EQ(heard_.back(), absl::AbortedError("over"));
  Listen();  // too late: it hears so at once
  EXPECT_EQ(heard_.back(), absl::AbortedError("over"));
}

TEST_F(VersionProgressTest, WhatIsPublishedDoesNotFail) {
  progress_.Advance(1);
  progress_.Publish();
  progress_.Fail(absl::AbortedError("over"));
  EXPECT_TRUE(progress_.Allows(1, true));
}

}  // namespace
}  // namespace agg
