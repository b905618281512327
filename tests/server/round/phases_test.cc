// The coordinator's phases on one shard: order and idempotency (P7).
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two rows have landed in round 0; the test is the coordinator.
class PhasesTest : public testing::Test {
 protected:
  static ClusterOptions Options() {
    ClusterOptions options = MakeClusterOptions(1, 2);
    OptimizerOptions lamb;
    lamb.kind = OptimizerKind::kLamb;
    SetOptimizer(lamb, &options);
    return options;
  }
  PhasesTest() : job_(Options(), MakeManifest({{40}, {}, {0}, {9}}), 2) {
    for (LocalWorker& worker : job_.workers) {
      EXPECT_EQ(worker.Push(0, RandomTensors(
                                   job_.manifest,
                                   50 + static_cast<uint64_t>(worker.rank()))),
                absl::OkStatus());
    }
  }

  ShardEngine* engine() { return job_.cluster.engine(0); }
  Phase MakePhase(PhaseKind kind) {
    Phase phase;
    phase.kind = kind;
    phase.epoch = job_.workers[0].joined().epoch;
    if (kind == PhaseKind::kClose) {
      for (LocalWorker& worker : job_.workers) {
        phase.rows.push_back({worker.rank(), worker.session()});
      }
    }
    if (kind == PhaseKind::kCompensatedGram) phase.tensors = {0, 3};
    phase.step.coefficients = {0.25, 0.75};
    phase.step.learning_rate = 0.1;
    phase.publish.version = 1;
    return phase;
  }
  absl::StatusOr<PhaseResult> Run(PhaseKind kind) {
    return engine()->RunPhase(MakePhase(kind));
  }
  absl::Status Error(const Phase& phase) {
    return engine()->RunPhase(phase).status();
  }
  // A new epoch, in which the job waits for a Seed.
  void ForgetAll(uint64_t epoch) {
    ASSERT_EQ(engine()->Attach(epoch, nullptr).status(), absl::OkStatus());
    Phase phase = MakePhase(PhaseKind::kRecover);
    phase.epoch = epoch;
    phase.recover.unseeded = true;
    ASSERT_EQ(Error(phase), absl::OkStatus());
  }

  // Version 1 of a job that is asked for each phase once.
  Tensors WithoutRepeats() {
    RunningJob other(Options(), job_.manifest, 2);
    for (LocalWorker& worker : other.workers) {
      EXPECT_EQ(worker.Push(0, RandomTensors(
                                   job_.manifest,
                                   50 + static_cast<uint64_t>(worker.rank()))),
                absl::OkStatus());
    }
    for (PhaseKind kind :
         {PhaseKind::kClose, PhaseKind::kUpdate, PhaseKind::kPublish}) {
      Phase phase = MakePhase(kind);
      phase.epoch = other.workers[0].joined().epoch;
      for (size_t i = 0; i < phase.rows.size(); ++i) {
        phase.rows[i].session = other.workers[i].session();
      }
      EXPECT_TRUE(other.cluster.engine(0)->RunPhase(phase).ok());
    }
    return *other.cluster.Pull(1);
  }

  RunningJob job_;
};

bool SameGrams(const PhaseResult& a, const PhaseResult& b) {
  if (a.grams.size() != b.grams.size()) return false;
  for (size_t i = 0; i < a.grams.size(); ++i) {
    if (a.grams[i].slice != b.grams[i].slice ||
        a.grams[i].hi != b.grams[i].hi || a.grams[i].lo != b.grams[i].lo) {
      return false;
    }
  }
  return true;
}

TEST_F(PhasesTest, EveryPhaseMayBeRepeated) {
  const auto close = Run(PhaseKind::kClose);
  ASSERT_TRUE(close.ok()) << close.status();
  ASSERT_EQ(close->grams.size(), 3u);  // the empty tensor has no slice
  EXPECT_EQ(close->grams[0].hi.size(), 3u);
  EXPECT_TRUE(SameGrams(*close, *Run(PhaseKind::kClose)));

  const auto compensated = Run(PhaseKind::kCompensatedGram);
  ASSERT_TRUE(compensated.ok()) << compensated.status();
  ASSERT_EQ(compensated->grams.size(), 2u);
  EXPECT_EQ(compensated->grams[1].lo.size(), 3u);
  EXPECT_TRUE(SameGrams(*compensated, *Run(PhaseKind::kCompensatedGram)));

  const auto norms = Run(PhaseKind::kNorms);
  ASSERT_TRUE(norms.ok()) << norms.status();
  ASSERT_EQ(norms->norms.size(), 3u);
  EXPECT_GT(norms->norms[0].update_norm_squared, 0.0);
  EXPECT_EQ(norms->norms[0].update_norm_squared,
            Run(PhaseKind::kNorms)->norms[0].update_norm_squared);

  ASSERT_TRUE(Run(PhaseKind::kUpdate).ok());
  ASSERT_TRUE(Run(PhaseKind::kUpdate).ok());  // does not step twice
  EXPECT_EQ(engine()->Status().version, 0u);
  ASSERT_TRUE(Run(PhaseKind::kPublish).ok());
  const Tensors once = *job_.cluster.Pull(1);
  ASSERT_TRUE(Run(PhaseKind::kPublish).ok());
  EXPECT_EQ(engine()->Status().version, 1u);

  // The same bits.
  EXPECT_EQ(WithoutRepeats(), once);
}

TEST_F(PhasesTest, AnUpdateThatPublishesMayBeRepeated) {
  ASSERT_TRUE(Run(PhaseKind::kClose).ok());
  Phase update = MakePhase(PhaseKind::kUpdate);
  update.publishes = true;
  for (int i = 0; i < 2; ++i) {
    const auto result = engine()->RunPhase(update);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(engine()->Status().version, 1u);
  }
  const Tensors once = *job_.cluster.Pull(1);
  // As if it had been asked to publish, too.
  EXPECT_TRUE(Run(PhaseKind::kPublish).ok());
  EXPECT_EQ(*job_.cluster.Pull(1), once);

  EXPECT_EQ(WithoutRepeats(), once);
}

TEST_F(PhasesTest, AnUpdateThatPublishesSaysAgainWhatIsNotFinite) {
  ASSERT_TRUE(Run(PhaseKind::kClose).ok());
  Phase update = MakePhase(PhaseKind::kUpdate);
  update.publishes = true;
  update.step.learning_rate = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 2; ++i) {
    const auto result = engine()->RunPhase(update);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->not_finite_slice, 0);
  }
}

TEST_F(PhasesTest, AbandonOpensTheRoundAgainAndKeepsTheRows) {
  const auto close = Run(PhaseKind::kClose);
  ASSERT_TRUE(close.ok());
  const FrameHeader header =
      MakeFrames(job_.workers[0].Header(0), *MakeShardPlan(job_.manifest, 1), 0,
                 RandomTensors(job_.manifest, 50))[0]  // its row
          .header;
  EXPECT_TRUE(engine()->BeginFrame(header)->closed);
  ASSERT_TRUE(Run(PhaseKind::kAbandon).ok());
  ASSERT_TRUE(Run(PhaseKind::kAbandon).ok());
  const auto open = engine()->BeginFrame(header);
  EXPECT_FALSE(open->closed);
  EXPECT_TRUE(engine()->EndFrame(*open)->acknowledge);
  EXPECT_TRUE(SameGrams(*close, *Run(PhaseKind::kClose)));
}

TEST_F(PhasesTest, RefusesPhasesOutOfOrder) {
  for (PhaseKind kind :
       {PhaseKind::kCompensatedGram, PhaseKind::kNorms, PhaseKind::kUpdate}) {
    EXPECT_THAT(Error(MakePhase(kind)).message(),
                HasSubstr("round 0 has not been closed"));
  }
  EXPECT_THAT(Error(MakePhase(PhaseKind::kPublish)).message(),
              HasSubstr("round 0 has not been updated"));
  Phase phase = MakePhase(PhaseKind::kClose);
  phase.round = 1;
  EXPECT_THAT(Error(phase).message(),
              HasSubstr("phase of round 1; the open round is 0"));
  phase = MakePhase(PhaseKind::kPublish);
  phase.publish.version = 2;
  EXPECT_EQ(Error(phase).code(), absl::StatusCode::kFailedPrecondition);
  phase = MakePhase(PhaseKind::kClose);
  phase.epoch -= 1;
  EXPECT_TRUE(absl::IsAborted(Error(phase)));
}

TEST_F(PhasesTest, ClosesOverCompleteRowsOnlyAndOnce) {
  Phase phase = MakePhase(PhaseKind::kClose);
  phase.rows.clear();
  EXPECT_TRUE(absl::IsInvalidArgument(Error(phase)));
  // Another session's, and ranks that never joined.
  phase.rows = {{0, job_.workers[0].session() + 1},
                {1, job_.workers[1].session()},
                {3, 1},
                {100, 1}};
  const auto refusal = engine()->RunPhase(phase);
  ASSERT_TRUE(refusal.ok()) << refusal.status();
  EXPECT_THAT(refusal->incomplete_ranks, ElementsAre(0, 3, 100));
  EXPECT_TRUE(refusal->grams.empty());
  EXPECT_THAT(Error(MakePhase(PhaseKind::kUpdate)).message(),
              HasSubstr("round 0 has not been closed"));
  ASSERT_TRUE(Run(PhaseKind::kAbandon).ok());
  ASSERT_TRUE(Run(PhaseKind::kClose).ok());
  phase = MakePhase(PhaseKind::kClose);
  phase.rows = {{0, job_.workers[0].session()}};
  EXPECT_THAT(Error(phase).message(), HasSubstr("closed with other rows"));
}

// P7: what arrives after the first answer does not change it.
TEST_F(PhasesTest, ARefusedCloseMayBeRepeated) {
  LocalWorker late = Joined(&job_.cluster, 2, job_.manifest);
  Phase phase = MakePhase(PhaseKind::kClose);
  phase.rows.push_back({2, late.session()});
  EXPECT_THAT(engine()->RunPhase(phase)->incomplete_ranks, ElementsAre(2));
  const Tensors row = RandomTensors(job_.manifest, 9);
  EXPECT_EQ(late.Push(0, row), absl::OkStatus());  // dropped as too late
  EXPECT_THAT(engine()->RunPhase(phase)->incomplete_ranks, ElementsAre(2));
  ASSERT_TRUE(Run(PhaseKind::kAbandon).ok());
  EXPECT_THAT(engine()->RunPhase(phase)->incomplete_ranks, ElementsAre(2));
  ASSERT_TRUE(Run(PhaseKind::kAbandon).ok());
  ASSERT_EQ(late.Push(0, row), absl::OkStatus());
  EXPECT_EQ(engine()->RunPhase(phase)->grams.size(), 3u);
}

TEST_F(PhasesTest, AFailedUpdateEndsTheEpochOnTheShard) {
  ASSERT_TRUE(Run(PhaseKind::kClose).ok());
  Phase phase = MakePhase(PhaseKind::kUpdate);
  phase.step.coefficients = {1.0};  // for two rows
  EXPECT_TRUE(absl::IsInvalidArgument(Error(phase)));
  EXPECT_TRUE(absl::IsUnavailable(Error(MakePhase(PhaseKind::kPublish))));
  EXPECT_FALSE(engine()->Status().attached);
}

TEST_F(PhasesTest, AttachEndsTheFormerEpochAndKeepsItsMemory) {
  const uint64_t epoch = job_.workers[0].joined().epoch;
  ASSERT_TRUE(Run(PhaseKind::kClose).ok());
  EXPECT_EQ(engine()->Attach(epoch, nullptr).status(),
            absl::OkStatus());  // a repeat
  EXPECT_TRUE(engine()->Status().published);
  EXPECT_TRUE(absl::IsAborted(engine()->Attach(epoch - 1, nullptr).status()));
  ASSERT_EQ(engine()->Attach(epoch + 1, nullptr).status(), absl::OkStatus());
  EXPECT_TRUE(engine()->Status().published);
  EXPECT_TRUE(absl::IsAborted(Error(MakePhase(PhaseKind::kUpdate))));
  // Of the new epoch, before what is there has been recovered.
  Phase phase = MakePhase(PhaseKind::kClose);
  phase.epoch = epoch + 1;
  EXPECT_TRUE(absl::IsFailedPrecondition(Error(phase)));
}

TEST_F(PhasesTest, AJobThatIsUnseededForgetsTheFormerEpoch) {
  const uint64_t epoch = job_.workers[0].joined().epoch;
  ForgetAll(epoch + 1);
  EXPECT_FALSE(engine()->Status().published);
  EXPECT_EQ(engine()->Status().memory_planned_bytes, 0);
  EXPECT_TRUE(absl::IsAborted(Error(MakePhase(PhaseKind::kUpdate))));
  EXPECT_EQ(engine()->SetSession(epoch + 1, SessionChange()).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(PhasesTest, AManifestInUseIsNotForgotten) {
  const uint64_t epoch = job_.workers[0].joined().epoch;
  EXPECT_TRUE(absl::IsAborted(engine()->ForgetManifest(epoch - 1)));
  EXPECT_EQ(engine()->ForgetManifest(epoch), absl::OkStatus());
  ASSERT_TRUE(Run(PhaseKind::kClose).ok());
  // The seeded parameters outlive the workers.
  for (LocalWorker& worker : job_.workers) {
    ASSERT_EQ(worker.Leave(), absl::OkStatus());
  }
  EXPECT_EQ(engine()->ForgetManifest(epoch), absl::OkStatus());
  EXPECT_TRUE(job_.cluster.Pull(0).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      engine()->SetManifest(epoch, MakeManifest({{1}}))));
  EXPECT_TRUE(job_.cluster.Pull(0).ok());

  ForgetAll(epoch + 1);
  ASSERT_EQ(engine()->SetManifest(epoch + 1, job_.manifest), absl::OkStatus());
  EXPECT_GT(engine()->Status().memory_planned_bytes, 0);
  ASSERT_EQ(engine()->ForgetManifest(epoch + 1), absl::OkStatus());
  ASSERT_EQ(engine()->ForgetManifest(epoch + 1), absl::OkStatus());
  EXPECT_EQ(engine()->Status().memory_planned_bytes, 0);
  EXPECT_EQ(engine()->SetSession(epoch + 1, SessionChange()).code(),
            absl::StatusCode::kFailedPrecondition);
}

// A frame of the former epoch that was being copied is not acknowledged.
TEST_F(PhasesTest, AttachInTheMiddleOfACopy) {
  FrameHeader header =
      MakeFrames(job_.workers[0].Header(0), *MakeShardPlan(job_.manifest, 1), 0,
                 RandomTensors(job_.manifest, 1))[0]
          .header;
  SessionChange joins;
  joins.session = 77;
  joins.rank = 2;
  ASSERT_EQ(engine()->SetSession(header.epoch, joins), absl::OkStatus());
  header.session = 77;
  auto landing = engine()->BeginFrame(header);
  ASSERT_TRUE(landing.ok()) << landing.status();
  ASSERT_EQ(engine()->Attach(header.epoch + 1, nullptr).status(),
            absl::OkStatus());
  landing->slices[0].destination[0] = 1;  // still memory
  landing->slices[0].landed = true;
  EXPECT_TRUE(absl::IsAborted(engine()->EndFrame(*landing).status()));
}

}  // namespace
}  // namespace agg
