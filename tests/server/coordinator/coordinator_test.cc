// The coordinator around its state: attendance, leases, events, waiting,
// draining; with a clock that stands still.
#include "server/coordinator/coordinator.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/job_phase.h"
#include "server/base/log.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/task_context.h"
#include "server/round/phase.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Manifest TestManifest() { return MakeManifest({{9}, {}}); }

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() : job_(MakeClusterOptions(2, 2), TestManifest(), 2) {}

  Coordinator* coordinator() { return job_.cluster.coordinator(); }
  LocalWorker& worker(int rank) { return job_.workers[rank]; }
  uint64_t epoch() { return worker(0).joined().epoch; }
  Tensors Row() { return RandomTensors(job_.manifest, 5); }
  // Returns the stream's number.
  uint64_t Attend(int rank) {
    const auto stream = coordinator()->Attend(
        epoch(), worker(rank).session(), [this, rank](const JobEvent& event) {
          events_[rank].push_back(event.kind);
        });
    EXPECT_TRUE(stream.ok()) << stream.status();
    return stream.value_or(0);
  }

  std::vector<JobEventKind> events_[2];
  RunningJob job_;
};

TEST_F(CoordinatorTest, ObserveDescribesTheJob) {
  LocalCluster empty(MakeClusterOptions(1, 1));
  EXPECT_EQ(empty.coordinator()->Observe().status().code(),
            absl::StatusCode::kFailedPrecondition);
  const auto job = coordinator()->Observe();
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->epoch, epoch());
  EXPECT_TRUE(job->seeded);
  EXPECT_EQ(job->session, 0u);
  EXPECT_EQ(job->manifest->tensors.size(), 2u);
}

TEST_F(CoordinatorTest, EpochsCountMicroseconds) {
  EXPECT_EQ(epoch(), static_cast<uint64_t>(
                         absl::ToUnixMicros(job_.cluster.clock()->Now())));
}

TEST_F(CoordinatorTest, RoundsWaitForEverybodyAndAreAnnounced) {
  OutcomeReply observer;
  coordinator()->WaitRound(0, {PushKind::kGradient, 0, 0}, observer.callback());
  const OutcomeReply first = *worker(0).Contribute(0, Row());
  const OutcomeReply repeat = worker(0).Commit(0);
  job_.cluster.Settle();
  EXPECT_FALSE(first.called());
  JobStatus status = coordinator()->Status();
  EXPECT_EQ(status.phase, JobPhase::kOpen);
  EXPECT_THAT(status.missing_ranks, ElementsAre(1));
  job_.cluster.clock()->Advance(absl::Seconds(7));
  status = coordinator()->Status();
  EXPECT_TRUE(status.workers[0].committed);
  EXPECT_EQ(status.workers[1].waited_for, absl::Seconds(7));
  EXPECT_EQ(status.workers[1].lease_remaining, absl::Seconds(23));
  const OutcomeReply second = *worker(1).Contribute(0, Row());
  job_.cluster.Settle();
  for (const OutcomeReply& reply : {first, repeat, second, observer}) {
    ASSERT_EQ(reply.num_calls(), 1);
    EXPECT_EQ(reply.Get()->version, 1u);
  }
  EXPECT_TRUE(repeat.Get()->included);
  EXPECT_FALSE(observer.Get()->included);
  const auto reports = job_.cluster.reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].applied);
  EXPECT_EQ(reports[0].durations.wait, absl::Seconds(7));
  EXPECT_EQ(reports[0].statistics.row_norms.size(), 2u);
  EXPECT_EQ(coordinator()->LastOutcome()->version, 1u);
}

TEST_F(CoordinatorTest, ALeaseThatRunsOutFreesTheRound) {
  Attend(0);
  Attend(1);
  const OutcomeReply reply = *worker(0).Contribute(0, Row());
  OutcomeReply dead;
  coordinator()->WaitRound(
      epoch(), {PushKind::kGradient, 1, worker(1).session()}, dead.callback());
  job_.cluster.Advance(absl::Seconds(20));
  ASSERT_EQ(*coordinator()->Renew(epoch(), worker(0).session()), 0u);
  job_.cluster.Advance(absl::Seconds(10));
  ASSERT_TRUE(reply.called());
  EXPECT_THAT(reply.Get()->ranks, ElementsAre(0));
  EXPECT_THAT(events_[1], ElementsAre(JobEventKind::kExpired));
  EXPECT_THAT(events_[0], ElementsAre(JobEventKind::kWorkerLost));
  EXPECT_TRUE(absl::IsNotFound(dead.Get().status()));
  EXPECT_TRUE(absl::IsNotFound(worker(1).Push(1, Row())));
}

TEST_F(CoordinatorTest, ARenewalSaysHowTheWorkerReachesTheShards) {
  const uint64_t session = worker(1).session();
  const auto text = [this] {
    return coordinator()->Status().workers[1].transports.text;
  };
  EXPECT_EQ(text(), "");
  ASSERT_TRUE(coordinator()->Renew(epoch(), session, "shm tcp").ok());
  EXPECT_EQ(text(), "shm tcp");
  EXPECT_EQ(coordinator()->Status().workers[0].transports.text, "");
  // One that says nothing leaves what was said.
  ASSERT_TRUE(coordinator()->Renew(epoch(), session).ok());
  EXPECT_EQ(text(), "shm tcp");
  ASSERT_TRUE(coordinator()->Renew(epoch(), session, "unix unix").ok());
  EXPECT_EQ(text(), "unix");
  const absl::Status status =
      coordinator()->Renew(epoch(), session, "shm").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(),
              HasSubstr("transports is of 1 words; allowed: none, or one per "
                        "shard, 2"));
  EXPECT_EQ(text(), "unix");
}

TEST_F(CoordinatorTest, AReconnectInTimeKeepsTheSession) {
  coordinator()->Detach(Attend(1));
  job_.cluster.Advance(absl::Seconds(4));
  const uint64_t former = Attend(1);
  job_.cluster.Advance(absl::Seconds(4));
  EXPECT_TRUE(coordinator()->Renew(epoch(), worker(1).session()).ok());
  // The former stream's end may be noticed after the next one's beginning.
  const uint64_t next = Attend(1);
  coordinator()->Detach(former);
  job_.cluster.Advance(absl::Seconds(10));
  EXPECT_TRUE(coordinator()->Renew(epoch(), worker(1).session()).ok());
  // The next one's end counts all the same.
  coordinator()->Detach(next);
  EXPECT_FALSE(coordinator()->Status().workers[1].attending);
  job_.cluster.Advance(absl::Seconds(5));
  EXPECT_TRUE(absl::IsNotFound(
      coordinator()->Renew(epoch(), worker(1).session()).status()));
}

TEST_F(CoordinatorTest, ASupersededWorkerHearsOfIt) {
  const uint64_t stream = Attend(0);
  const OutcomeReply waiting = *worker(0).Contribute(0, Row());
  LocalWorker successor = Joined(&job_.cluster, 0, job_.manifest);
  EXPECT_THAT(events_[0], ElementsAre(JobEventKind::kSuperseded));
  EXPECT_TRUE(absl::IsAborted(waiting.Get().status()));
  EXPECT_THAT(waiting.Get().status().message(), HasSubstr("superseded"));
  EXPECT_TRUE(absl::IsAborted(
      coordinator()->Renew(epoch(), worker(0).session()).status()));
  coordinator()->Detach(stream);  // changes nothing
}

TEST_F(CoordinatorTest, LeavingAllFinishesTheJob) {
  Attend(0);
  Attend(1);
  OutcomeReply waiting;
  coordinator()->WaitRound(epoch(), {PushKind::kGradient, 0, 0},
                           waiting.callback());
  EXPECT_EQ(worker(0).Leave(), absl::OkStatus());
  EXPECT_FALSE(coordinator()->finished());
  EXPECT_EQ(worker(1).Leave(), absl::OkStatus());
  EXPECT_TRUE(coordinator()->finished());
  EXPECT_THAT(events_[1], ElementsAre(JobEventKind::kFinished));
  EXPECT_EQ(waiting.Get().status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(coordinator()->Status().phase, JobPhase::kFinished);
  EXPECT_EQ(worker(0).Join().code(), absl::StatusCode::kFailedPrecondition);
}

// NOT_FOUND would ask it to join again.
TEST_F(CoordinatorTest, CallsOfOneThatHasLeftAreAborted) {
  ASSERT_EQ(worker(1).Leave(), absl::OkStatus());
  for (const absl::Status& status :
       {worker(1).Push(0, Row()), worker(1).Commit(0).Get().status(),
        coordinator()->Renew(epoch(), worker(1).session()).status()}) {
    EXPECT_TRUE(absl::IsAborted(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("this session has left the job"));
  }
}

TEST_F(CoordinatorTest, AJoinerWhomEverybodyLeftGoesOn) {
  LocalWorker joiner = Joined(&job_.cluster, 3, job_.manifest);
  ASSERT_EQ(joiner.joined().first_round, 1u);
  for (int rank : {0, 1}) EXPECT_EQ(worker(rank).Leave(), absl::OkStatus());
  EXPECT_EQ(coordinator()->LastOutcome()->kind, OutcomeKind::kSkipped);
  EXPECT_THAT(coordinator()->LastOutcome()->message, HasSubstr("left"));
  EXPECT_EQ(*job_.cluster.Pull(1), *job_.cluster.Pull(0));
  const OutcomeReply reply = *joiner.Contribute(1, Row());
  job_.cluster.Settle();
  EXPECT_TRUE(reply.Get()->included);
}

TEST_F(CoordinatorTest, MinimumOfWorkersAfterTheTimeout) {
  ClusterOptions options = MakeClusterOptions(1, 3);
  options.coordinator.min_workers = 1;
  options.coordinator.start_timeout = absl::Seconds(10);
  RunningJob job(options, job_.manifest, 1);
  const OutcomeReply reply = *job.workers[0].Contribute(0, Row());
  job.cluster.Advance(absl::Seconds(9));
  EXPECT_FALSE(reply.called());
  job.cluster.Advance(absl::Seconds(1));
  EXPECT_TRUE(reply.called());
}

TEST_F(CoordinatorTest, RoundTimeoutClosesWithoutTheLate) {
  ClusterOptions options = MakeClusterOptions(2, 2);
  options.coordinator.round_timeout = absl::Seconds(3);
  RunningJob job(options, job_.manifest, 2);
  const OutcomeReply first = *job.workers[0].Contribute(0, Row());
  job.cluster.Advance(absl::Seconds(3));
  ASSERT_TRUE(first.called());
  EXPECT_THAT(first.Get()->ranks, ElementsAre(0));
  // The late one's bytes are dropped, its commit is answered.
  EXPECT_EQ(job.workers[1].Push(0, Row()), absl::OkStatus());
  const OutcomeReply late = job.workers[1].Commit(0);
  ASSERT_TRUE(late.called());
  EXPECT_FALSE(late.Get()->included);
  EXPECT_EQ(job.workers[1].Push(1, Row()), absl::OkStatus());
}

TEST_F(CoordinatorTest, DrainEndsEverything) {
  Attend(0);
  OutcomeReply waiting = *worker(0).Contribute(0, Row());
  Reply<absl::StatusOr<JoinResult>> queued;
  coordinator()->Join({2, job_.manifest, "late"}, queued.callback());
  for (int repeat = 0; repeat < 2; ++repeat) {
    coordinator()->Drain(absl::InfiniteFuture());
  }
  EXPECT_EQ(waiting.num_calls(), 1);
  EXPECT_TRUE(absl::IsUnavailable(waiting.Get().status()));
  EXPECT_THAT(waiting.Get().status().message(), HasSubstr("draining"));
  EXPECT_THAT(events_[0], ElementsAre(JobEventKind::kDraining));
  EXPECT_EQ(coordinator()->Status().phase, JobPhase::kDraining);
  EXPECT_TRUE(absl::IsUnavailable(worker(0).Commit(0).Get().status()));
  EXPECT_TRUE(absl::IsUnavailable(coordinator()->Observe().status()));
  // What was queued is answered in the end, too.
  EXPECT_FALSE(queued.called());
  job_.cluster.StopCoordinator();
  EXPECT_EQ(queued.num_calls(), 1);
  EXPECT_TRUE(absl::IsUnavailable(queued.Get().status()));
}

// Workers hear of a drain though a round is in execution, which may take long.
TEST_F(CoordinatorTest, DrainIsAnnouncedBeforeTheRoundEnds) {
  Mutex mutex;
  CondVar heard;
  bool draining = false;
  const auto stream = coordinator()->Attend(
      epoch(), worker(0).session(), [&](const JobEvent& event) {
        if (event.kind != JobEventKind::kDraining) return;
        MutexLock lock(&mutex);
        draining = true;
        heard.NotifyAll();
      });
  ASSERT_TRUE(stream.ok()) << stream.status();
  std::thread drain;
  job_.cluster.peer(0)->BeforePhase([&](const Phase& phase) {
    if (phase.kind != PhaseKind::kUpdate) return;
    drain = std::thread([&] { coordinator()->Drain(absl::InfiniteFuture()); });
    MutexLock lock(&mutex);
    while (!draining) heard.Wait(&mutex);
  });
  job_.RunRound(0);
  drain.join();
}

TEST_F(CoordinatorTest, ARoundFarAheadIsNotWaitedFor) {
  OutcomeReply next;
  EXPECT_NE(
      coordinator()->WaitRound(0, {PushKind::kGradient, 1, 0}, next.callback()),
      0u);
  EXPECT_FALSE(next.called());
  OutcomeReply absurd;
  EXPECT_EQ(coordinator()->WaitRound(0, {PushKind::kGradient, 2, 0},
                                     absurd.callback()),
            0u);
  EXPECT_EQ(absurd.Get().status(), absl::FailedPreconditionError(
                                       "wait for round 2; current version 0"));
}

TEST_F(CoordinatorTest, AWaitWhoseCallerHasGoneIsForgotten) {
  OutcomeReply gone;
  coordinator()->CancelWait(coordinator()->WaitRound(
      0, {PushKind::kGradient, 0, 0}, gone.callback()));
  job_.RunRound(0);
  EXPECT_FALSE(gone.called());
}

TEST_F(CoordinatorTest, QueuedCallsAreBounded) {
  JoinCall call;
  call.rank = 1;
  call.manifest = TestManifest();
  std::vector<absl::Status> answers;
  const auto join = [&] {
    coordinator()->Join(
        call,
        [&](const absl::StatusOr<JoinResult>& result) {
          answers.push_back(result.status());
        },
        [] { return true; });
  };
  for (size_t i = 0; i < kMaxQueuedCalls; ++i) join();
  EXPECT_THAT(answers, IsEmpty());
  join();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0],
            absl::UnavailableError(
                "1024 calls wait for the coordinator already; try again"));
  job_.cluster.Settle();
  // Nobody waits for these Joins: rank 1's session goes on.
  EXPECT_EQ(answers.size(), kMaxQueuedCalls + 1);
  EXPECT_TRUE(absl::IsCancelled(answers.back()));
  EXPECT_TRUE(coordinator()->Renew(epoch(), worker(1).session()).ok());
}

// One shard takes the session before another one refuses it.
TEST(CoordinatorJoinTest, AResumedSessionThatWasRefusedIsNotGivenAgain) {
  RunningJob job(MakeClusterOptions(2, 2), TestManifest(), 2);
  JoinCall call;
  call.rank = 2;
  call.manifest = TestManifest();
  call.resume_session = 5;  // of a life that nobody here knows
  const auto join = [&] {
    Reply<absl::StatusOr<JoinResult>> reply;
    job.cluster.coordinator()->Join(call, reply.callback());
    job.cluster.Settle();
    return reply.Get();
  };
  job.cluster.peer(1)->FailNextSession(absl::ResourceExhaustedError("full"));
  EXPECT_TRUE(absl::IsResourceExhausted(join().status()));
  const absl::StatusOr<JoinResult> again = join();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(again->session, 5u);
}

// The caller goes while the shards hear of its session.
TEST(CoordinatorJoinTest, AJoinWhoseCallerGoesMeanwhileHasNoEffect) {
  LocalCluster cluster(MakeClusterOptions(2, 2));
  JoinCall call;
  call.manifest = TestManifest();
  int num_questions = 0;
  absl::Status answer;
  cluster.coordinator()->Join(
      call,
      [&](const absl::StatusOr<JoinResult>& result) {
        answer = result.status();
      },
      [&] { return ++num_questions == 3; });
  cluster.Settle();
  EXPECT_EQ(num_questions, 3);
  EXPECT_TRUE(absl::IsCancelled(answer)) << answer;
  EXPECT_THAT(cluster.Status().workers, IsEmpty());
  // Its manifest is not the job's, and its rank and the seed role are free.
  LocalWorker worker(&cluster, 0, MakeManifest({{3}}));
  EXPECT_EQ(worker.Join(), absl::OkStatus());
  EXPECT_TRUE(worker.joined().seed_role);
}

// A shard that answers pings and no phase: its epoch ends, and everybody who
// looks learns which shard and which phase.

class PhaseTimeoutTest : public testing::Test {
 protected:
  PhaseTimeoutTest()
      : job_(MakeClusterOptions(1, 1), MakeManifest({{40}, {7}}), 1) {}

  Coordinator* coordinator() { return job_.cluster.coordinator(); }

  RunningJob job_;
};

TEST_F(PhaseTimeoutTest, TheEpochEndsWithTheShardAndThePhaseNamed) {
  job_.RunRound(0);
  std::string waiting;
  job_.cluster.peer(0)->BeforePhase([&](const Phase& phase) {
    if (phase.kind != PhaseKind::kUpdate) return;
    // The loop is in the phase; another thread looks at the deadlines.
    job_.cluster.clock()->Advance(absl::Minutes(9));
    coordinator()->CheckDeadlines();
    waiting = coordinator()->Status().message;
    EXPECT_EQ(coordinator()->Status().phase, JobPhase::kClosing);
    job_.cluster.clock()->Advance(absl::Minutes(1));
    coordinator()->CheckDeadlines();
  });
  const OutcomeReply reply =
      *job_.workers[0].Contribute(1, RandomTensors(job_.manifest, 2));
  coordinator()->RunOnce();
  EXPECT_EQ(waiting,
            "round 1 has waited 9m for shard 0 (this process) (phase update)");
  const absl::Status status = reply.Get().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("shard lost: shard 0 (this process) has not answered "
                        "phase update of round 1 within 10m"));
  const JobStatus lost = coordinator()->Status();
  EXPECT_EQ(lost.phase, JobPhase::kShardLost);
  EXPECT_EQ(lost.phase_timeouts.at(0), 1u);
  // Another epoch begins as after any lost shard.
  job_.cluster.peer(0)->BeforePhase(nullptr);
  job_.cluster.Advance(absl::Seconds(2));
  EXPECT_EQ(coordinator()->Status().phase, JobPhase::kOpen);
  EXPECT_EQ(coordinator()->Status().version, 1u);
  LocalWorker again(&job_.cluster, 0, job_.manifest);
  EXPECT_EQ(again.Join(), absl::OkStatus());
}

TEST_F(PhaseTimeoutTest, AnOrdinaryRoundIsNotMentioned) {
  job_.RunRound(0);
  coordinator()->CheckDeadlines();
  EXPECT_EQ(coordinator()->Status().message, "");
  EXPECT_THAT(coordinator()->Status().phase_timeouts, ElementsAre(0));
}

// What the log says of who comes and goes, and of the job's end: one line each.

ClusterOptions Options() {
  ClusterOptions options = MakeClusterOptions(1, 2);
  options.coordinator.max_rounds = 2;
  return options;
}

class MembershipLogTest : public testing::Test {
 protected:
  MembershipLogTest() : job_(Options(), MakeManifest({{3}}), 2) {
    SetLogLevel(LogLevel::kInfo);
    testing::internal::CaptureStderr();
  }
  ~MembershipLogTest() override { SetLogLevel(LogLevel::kError); }

  static std::string Log() { return testing::internal::GetCapturedStderr(); }
  Coordinator* coordinator() { return job_.cluster.coordinator(); }
  uint64_t Attend(int rank) {
    return coordinator()
        ->Attend(job_.workers[rank].joined().epoch,
                 job_.workers[rank].session(),
                 [this](const JobEvent& event) { events_.push_back(event); })
        .value_or(0);
  }

  std::vector<JobEvent> events_;  // of all that attend
  RunningJob job_;
};

TEST_F(MembershipLogTest, SaysWhoJoinedAndWhoLeft) {
  ASSERT_EQ(job_.workers[1].Leave(), absl::OkStatus());
  ASSERT_EQ(job_.workers[1].Join(), absl::OkStatus());
  const std::string log = Log();
  EXPECT_THAT(log, HasSubstr(" I ] rank 1 (test worker 1) has left the job; "
                             "1 of 2 workers are in"));
  EXPECT_THAT(
      log,
      HasSubstr(" I ] rank 1 joined (test worker 1); 2 of 2 workers are in; "
                "its first round is 1"));
}

TEST_F(MembershipLogTest, SaysWhoseLeaseRanOut) {
  job_.cluster.Advance(absl::Seconds(30));
  const std::string log = Log();
  EXPECT_THAT(
      log,
      HasSubstr(" W ] rank 0 (test worker 0) is lost: its lease of 30s has run "
                "out; 0 of 2 workers are in"));
  EXPECT_THAT(log, HasSubstr("rank 1 (test worker 1) is lost"));
}

TEST_F(MembershipLogTest, SaysWhoseConnectionBroke) {
  const uint64_t first = Attend(0);
  coordinator()->Detach(Attend(1));
  coordinator()->Detach(first);
  Attend(0);  // back in the grace
  job_.cluster.Advance(absl::Seconds(5));
  const std::string log = Log();
  EXPECT_THAT(
      log,
      HasSubstr("W ] rank 1 (test worker 1) is lost: its connection broke, and "
                "it was not back within reconnect_grace (5s); "
                "1 of 2 workers are in"));
  EXPECT_THAT(log, Not(HasSubstr("rank 0")));
  // Who is in hears it, too.
  ASSERT_THAT(events_, testing::SizeIs(1));
  EXPECT_EQ(events_[0].kind, JobEventKind::kWorkerLost);
  EXPECT_THAT(
      events_[0].message,
      HasSubstr("rank 1 (test worker 1) is lost: its connection broke"));
}

TEST_F(MembershipLogTest, NobodyIsToldOfOneThatHasLeft) {
  Attend(0);
  ASSERT_EQ(job_.workers[1].Leave(), absl::OkStatus());
  Log();
  EXPECT_THAT(events_, testing::IsEmpty());
}

TEST_F(MembershipLogTest, SaysWhoWasEvictedOrSuperseded) {
  coordinator()->Evict(0, "stalled", [](absl::StatusOr<Eviction>) {});
  job_.cluster.Settle();
  LocalWorker successor = Joined(&job_.cluster, 1, job_.manifest);
  const std::string log = Log();
  EXPECT_THAT(log,
              HasSubstr(" W ] rank 0 (test worker 0) was evicted: stalled; "
                        "1 of 2 workers are in"));
  EXPECT_THAT(
      log,
      HasSubstr(" W ] rank 1 (test worker 1) was superseded: another session "
                "joined with this rank; 1 of 2"));
}

TEST_F(MembershipLogTest, SaysWhyTheJobEnded) {
  job_.RunRound(0);
  job_.RunRound(1);
  EXPECT_THAT(Log(), HasSubstr(" I ] the job has finished at version 2: "
                               "max_rounds (2) is reached; epoch "));
  EXPECT_THAT(job_.workers[0].Join().message(),
              HasSubstr("the job has finished at version 2: max_rounds (2)"));
}

TEST_F(MembershipLogTest, SaysThatTheLastWorkerLeft) {
  for (LocalWorker& worker : job_.workers) {
    ASSERT_EQ(worker.Leave(), absl::OkStatus());
  }
  EXPECT_THAT(Log(), HasSubstr("finished at version 0: the last worker has "
                               "left; epoch "));
}

}  // namespace
}  // namespace agg
