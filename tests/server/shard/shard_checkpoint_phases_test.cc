// A shard's checkpoints while rounds go on.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/optimizer_step.h"
#include "proto/shard_plan.h"
#include "server/base/file_system.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/round/phase.h"
#include "server/round/shard_options.h"
#include "tests/server/base/forwarding_files.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/shard/shard_ring.h"

namespace agg {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// A disk that does nothing until it is let go.
class SlowDisk : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  void Stop() {
    MutexLock lock(&mutex_);
    stopped_ = true;
  }
  void StopLists() {
    MutexLock lock(&mutex_);
    lists_stopped_ = true;
  }
  void Go() {
    MutexLock lock(&mutex_);
    stopped_ = false;
    lists_stopped_ = false;
    changed_.NotifyAll();
  }

  absl::Status CreateFolder(const std::string& path) override {
    MutexLock lock(&mutex_);
    while (stopped_) changed_.Wait(&mutex_);
    return ForwardingFiles::CreateFolder(path);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    MutexLock lock(&mutex_);
    while (lists_stopped_) changed_.Wait(&mutex_);
    return ForwardingFiles::List(path);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool lists_stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

class ShardCheckpointPhasesTest : public testing::Test {
 protected:
  static ShardOptions Options() {
    ShardOptions options;
    options.max_workers = 2;
    options.optimizer.kind = OptimizerKind::kAdam;
    return options;
  }
  static Manifest OneTensor() {
    TensorSpec tensor;
    tensor.name = "t";
    tensor.shape = {100};
    Manifest manifest;
    manifest.tensors.push_back(tensor);
    return manifest;
  }
  ShardCheckpointPhasesTest()
      : slow_(&disk_), ring_(1, Options(), OneTensor()) {
    EXPECT_TRUE(disk_.CreateFolder("/disk").ok());
  }
  void Begin() { ring_.Begin(1); }
  Phase Capture(uint64_t version) {
    Phase phase = ring_.MakePhase(PhaseKind::kCapture);
    phase.id = {ring_.epoch(), version};
    return phase;
  }
  absl::StatusOr<PhaseResult> Run(const Phase& phase) {
    return ring_.Run(0, phase);
  }

  SimDisk disk_;  // outlive the shard
  SlowDisk slow_;
  ShardRing ring_;
};

TEST_F(ShardCheckpointPhasesTest, RoundsGoOnWhileTheDiskIsSlow) {
  ring_.UseCheckpoints(&slow_);
  Begin();
  EXPECT_EQ(
      Run(ring_.MakePhase(PhaseKind::kCheckpointProgress))->checkpoint.stage,
      CheckpointProgress::Stage::kNone);
  slow_.Stop();
  ASSERT_EQ(Run(Capture(0)).status(), absl::OkStatus());
  ASSERT_EQ(Run(Capture(0)).status(), absl::OkStatus());  // a repeat
  ring_.RunRound(0);
  ring_.RunRound(1);
  EXPECT_EQ(
      Run(ring_.MakePhase(PhaseKind::kCheckpointProgress))->checkpoint.stage,
      CheckpointProgress::Stage::kWriting);
  // Due while one is being written: skipped and counted.
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(Capture(2)).status()));
  slow_.Go();
  const CheckpointProgress progress = ring_.WaitForPart(0);
  EXPECT_EQ(progress.stage, CheckpointProgress::Stage::kWritten);
  EXPECT_EQ(progress.part.file, "part-00000-of-00001.npz");
  EXPECT_EQ(progress.num_skipped, 1);
}

TEST_F(ShardCheckpointPhasesTest, IsOfAPublishedVersionAlone) {
  ring_.UseCheckpoints(&disk_);
  Begin();
  EXPECT_THAT(Run(Capture(1)).status().message(),
              HasSubstr("part 0 is at version 0"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(Capture(1)).status()));
  ring_.Push(0, 0);
  ring_.RunAll(ring_.MakePhase(PhaseKind::kClose));
  ring_.RunAll(ring_.MakePhase(PhaseKind::kUpdate));
  EXPECT_THAT(Run(Capture(0)).status().message(), HasSubstr("prepared"));
  EXPECT_TRUE(absl::IsFailedPrecondition(Run(Capture(0)).status()));
  ring_.RunAll(ring_.MakePhase(PhaseKind::kPublish));
  EXPECT_EQ(Run(Capture(1)).status(), absl::OkStatus());
  ring_.WaitForPart(0);
}

TEST_F(ShardCheckpointPhasesTest, AFailedDiskNamesTheFileAndRoundsGoOn) {
  ring_.UseCheckpoints(&disk_);
  Begin();
  // The operations of a good one, to find the append in the midst.
  const int64_t before = disk_.num_operations();
  ASSERT_EQ(Run(Capture(0)).status(), absl::OkStatus());
  ASSERT_EQ(ring_.WaitForPart(0).error, absl::OkStatus());
  ring_.RunRound(0);
  const int64_t append = disk_.num_operations() - before - 3;
  disk_.FailAt(disk_.num_operations() + append, SimDisk::Fault::kFail,
               absl::ResourceExhaustedError("disk full"));
  ASSERT_EQ(Run(Capture(1)).status(), absl::OkStatus());
  const CheckpointProgress failed = ring_.WaitForPart(0);
  EXPECT_EQ(failed.stage, CheckpointProgress::Stage::kFailed);
  EXPECT_TRUE(absl::IsResourceExhausted(failed.error));
  ring_.RunRound(1);
  disk_.Recover();
  EXPECT_NE(ring_.TakeCheckpoint({ring_.epoch(), 2}), "");
}

TEST_F(ShardCheckpointPhasesTest, TheOldestGoWhenANewOneIsSealed) {
  ring_.UseCheckpoints(&disk_);
  Begin();
  for (uint64_t round = 0; round < 4; ++round) {
    ring_.TakeCheckpoint({ring_.epoch(), round});
    ring_.RunRound(round);
  }
  const std::vector<CheckpointState> states =
      ring_.Attach()[0].checkpoints.states;
  ASSERT_THAT(states, SizeIs(2));
  EXPECT_EQ(states[0].id.version, 2u);
  EXPECT_EQ(states[1].id.version, 3u);
}

TEST_F(ShardCheckpointPhasesTest, WhatCannotBeReadBackIsNotSealed) {
  ring_.UseCheckpoints(&disk_);
  Begin();
  Phase seal = ring_.MakePhase(PhaseKind::kSeal);
  seal.checkpoint = "no manifest";
  EXPECT_TRUE(absl::IsDataLoss(Run(seal).status()));
  --seal.epoch;
  EXPECT_TRUE(absl::IsAborted(Run(seal).status()));
}

TEST_F(ShardCheckpointPhasesTest, WithoutAPathThereAreNone) {
  Begin();
  for (const PhaseKind kind : {PhaseKind::kCapture, PhaseKind::kSeal}) {
    Phase phase = ring_.MakePhase(kind);
    phase.id = {ring_.epoch(), 0};
    EXPECT_EQ(Run(phase).status(),
              absl::FailedPreconditionError(
                  "no checkpoint.path is configured for this shard"));
  }
}

TEST_F(ShardCheckpointPhasesTest, TheCopyIsInTheMemoryPlan) {
  ring_.Attach();
  ring_.SetManifest();
  const int64_t without = ring_.engine(0)->Status().memory_planned_bytes;
  ring_.UseCheckpoints(&disk_);
  ring_.Attach();
  ring_.SetManifest();
  // Three arrays of 128 elements, with what the slice is padded by; and one of
  // state while it is loaded.
  EXPECT_EQ(ring_.engine(0)->Status().memory_planned_bytes - without,
            (3 + 1) * 128 * 4);
}

// Its copies may be all that the job needs.
TEST_F(ShardCheckpointPhasesTest, AFolderThatCannotBeListedIsReported) {
  ring_.UseCheckpoints(&disk_);
  Begin();
  disk_.FailAt(disk_.num_operations(), SimDisk::Fault::kFail,
               absl::UnavailableError("/disk/job: input/output error"));
  const auto inventory = ring_.engine(0)->Attach(ring_.epoch() + 1, nullptr);
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  EXPECT_EQ(inventory->checkpoints.folder, "/disk/job");
  EXPECT_THAT(inventory->checkpoints.error, HasSubstr("input/output error"));
  EXPECT_THAT(inventory->copies, SizeIs(1));
}

// The look at a folder goes on, and its answer is good for a later call.
TEST_F(ShardCheckpointPhasesTest, AFolderThatHangsIsReportedInTime) {
  ring_.UseCheckpoints(&slow_);
  Begin();
  slow_.StopLists();
  auto inventory = ring_.engine(0)->Attach(ring_.epoch() + 1, nullptr);
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  EXPECT_THAT(inventory->checkpoints.error,
              HasSubstr("cannot list /disk/job: no answer within 2s"));
  slow_.Go();
  inventory = ring_.engine(0)->Attach(ring_.epoch() + 2, nullptr);
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  EXPECT_EQ(inventory->checkpoints.error, "");
}

}  // namespace
}  // namespace agg
