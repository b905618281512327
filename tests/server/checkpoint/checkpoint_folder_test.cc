#include "server/checkpoint/checkpoint_folder.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/checkpoint/sample_checkpoint.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kLife = 0xabc;

class CheckpointFolderTest : public testing::Test {
 protected:
  CheckpointFolderTest() { EXPECT_TRUE(disk_.CreateFolder("/disk").ok()); }

  absl::Status Write(const CheckpointId& id, int num_shards = 2) {
    CheckpointManifest manifest =
        SampleManifest(id, num_shards, SmallTensors());
    CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
    return WriteCheckpoint(&folder, &manifest);
  }

  std::vector<std::string> Folders() { return *disk_.List("/disk/job"); }

  SimDisk disk_;
};

TEST_F(CheckpointFolderTest, HasTheDocumentedNames) {
  ASSERT_EQ(Write({1000, 20}, 4), absl::OkStatus());
  EXPECT_THAT(Folders(), ElementsAre("1000-20"));
  EXPECT_THAT(*disk_.List("/disk/job/1000-20"),
              ElementsAre("manifest.json", "part-00000-of-00004.npz",
                          "part-00001-of-00004.npz", "part-00002-of-00004.npz",
                          "part-00003-of-00004.npz"));
}

TEST_F(CheckpointFolderTest, ListsByMadeAndThenVersionAsNumbers) {
  for (const CheckpointId& id :
       std::vector<CheckpointId>{{1000, 9}, {1000, 10}, {999, 300}}) {
    ASSERT_EQ(Write(id), absl::OkStatus());
  }
  // What is not one of its names is left alone.
  ASSERT_TRUE(disk_.CreateFolder("/disk/job/1000-010").ok());
  ASSERT_TRUE(disk_.CreateFolder("/disk/job/best").ok());
  ASSERT_TRUE(disk_.Create("/disk/job/notes-1").ok());
  CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  const auto states = folder.List();
  ASSERT_TRUE(states.ok());
  ASSERT_EQ(states->size(), 3u);
  EXPECT_TRUE((*states)[0].id == (CheckpointId{999, 300}));
  EXPECT_TRUE((*states)[1].id == (CheckpointId{1000, 9}));
  EXPECT_TRUE((*states)[2].id == (CheckpointId{1000, 10}));
  EXPECT_EQ((*states)[2].num_shards, 2);
  EXPECT_THAT((*states)[2].parts, ElementsAre(0, 1));
  EXPECT_TRUE((*states)[2].manifest);
  ASSERT_TRUE(folder.Retire(1).ok());
  EXPECT_THAT(Folders(), ElementsAre("1000-010", "1000-10", "best", "notes-1"));
}

TEST_F(CheckpointFolderTest, RetiresTheOldestAndRemovesOlderGarbageOnly) {
  ASSERT_EQ(Write({10, 1}), absl::OkStatus());
  ASSERT_EQ(Write({10, 2}), absl::OkStatus());
  ASSERT_EQ(Write({10, 3}), absl::OkStatus());
  CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  const ShardPlan plan = *MakeShardPlan(SmallTensors(), 2);
  for (const CheckpointId& id :
       std::vector<CheckpointId>{{10, 0}, {9, 99}, {10, 4}}) {
    ASSERT_TRUE(folder.WritePart(id, SampleSource(id, &plan, 0)).ok());
  }
  ASSERT_TRUE(folder.Retire(2).ok());
  // 10-4 may be the next one, which is being written.
  EXPECT_THAT(Folders(), ElementsAre("10-2", "10-3", "10-4"));
}

TEST_F(CheckpointFolderTest, ASupersededProcessPushesNoNewerOneOut) {
  ASSERT_EQ(Write({20, 1}), absl::OkStatus());
  ASSERT_EQ(Write({20, 2}), absl::OkStatus());
  ASSERT_EQ(Write({10, 50}), absl::OkStatus());
  CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  ASSERT_TRUE(folder.Retire(2).ok());
  EXPECT_THAT(Folders(), ElementsAre("20-1", "20-2"));
}

// Starts from a checkpoint seal the same version anew.
TEST_F(CheckpointFolderTest, KeepCountsDistinctVersions) {
  for (const CheckpointId& id : std::vector<CheckpointId>{
           {10, 43}, {10, 44}, {10, 45}, {20, 45}, {30, 45}}) {
    ASSERT_EQ(Write(id), absl::OkStatus());
  }
  CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  ASSERT_TRUE(folder.Retire(3).ok());
  EXPECT_THAT(Folders(), ElementsAre("10-43", "10-44", "30-45"));
}

// Sealed or not: a part may be all that this folder has of a checkpoint.
TEST_F(CheckpointFolderTest, WhatIsOlderThanTheLineStays) {
  ASSERT_EQ(Write({10, 1}), absl::OkStatus());
  ASSERT_EQ(Write({10, 2}), absl::OkStatus());
  CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  const ShardPlan plan = *MakeShardPlan(SmallTensors(), 2);
  const CheckpointId part{11, 3};
  ASSERT_TRUE(folder.WritePart(part, SampleSource(part, &plan, 1)).ok());
  for (const CheckpointId& id :
       std::vector<CheckpointId>{{20, 1}, {20, 2}, {25, 3}}) {
    ASSERT_EQ(Write(id), absl::OkStatus());
  }
  ASSERT_TRUE(folder.Retire(1, /*line=*/20).ok());
  EXPECT_THAT(Folders(), ElementsAre("10-1", "10-2", "11-3", "25-3"));
}

TEST_F(CheckpointFolderTest, APartThatWasNeverSealedIsDiscarded) {
  CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  const ShardPlan plan = *MakeShardPlan(SmallTensors(), 2);
  const CheckpointId id{10, 1};
  for (int part : {0, 1}) {
    ASSERT_TRUE(folder.WritePart(id, SampleSource(id, &plan, part)).ok());
  }
  ASSERT_TRUE(folder.Discard(id, "part-00000-of-00002.npz").ok());
  EXPECT_THAT(*disk_.List("/disk/job/10-1"),
              ElementsAre("part-00001-of-00002.npz"));
  ASSERT_TRUE(folder.Discard(id, "part-00001-of-00002.npz").ok());
  ASSERT_TRUE(folder.Discard(id, "part-00001-of-00002.npz").ok());
  EXPECT_THAT(Folders(), ElementsAre());
}

TEST_F(CheckpointFolderTest, APathThatIsGoneIsNoFolderWithoutCheckpoints) {
  const CheckpointFolder folder =
      *CheckpointFolder::Make(&disk_, "/gone", "job", kLife);
  EXPECT_TRUE(absl::IsNotFound(folder.List().status()));
}

TEST_F(CheckpointFolderTest, SaysThatTheJobBeganAnew) {
  CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  uint64_t begun = 7;
  ASSERT_TRUE(folder.List(&begun).ok());
  EXPECT_EQ(begun, 0u);
  // Also where there is nothing yet.
  ASSERT_EQ(folder.BeginAnew(12), absl::OkStatus());
  ASSERT_EQ(folder.BeginAnew(12), absl::OkStatus());
  ASSERT_EQ(folder.BeginAnew(9), absl::OkStatus());
  ASSERT_EQ(Write({13, 1}), absl::OkStatus());
  ASSERT_TRUE(disk_.Create("/disk/job/begun-anew-099").ok());
  ASSERT_TRUE(disk_.Create("/disk/job/begun-anew-99.abc.tmp").ok());
  ASSERT_EQ(folder.Retire(1), absl::OkStatus());
  const auto states = folder.List(&begun);
  ASSERT_TRUE(states.ok());
  EXPECT_EQ(states->size(), 1u);
  EXPECT_EQ(begun, 12u);
  EXPECT_THAT(disk_.Bytes("/disk/job/begun-anew-12"),
              HasSubstr("aggctl restore none"));
}

TEST_F(CheckpointFolderTest, AFailureIsNamedAndItsFileIsGone) {
  disk_.FailAt(disk_.num_operations() + 7, SimDisk::Fault::kShort,
               absl::ResourceExhaustedError("no room for X"));
  EXPECT_EQ(Write({1, 1}), absl::ResourceExhaustedError("no room for X"));
  disk_.Recover();
  EXPECT_THAT(*disk_.List("/disk/job/1-1"), ElementsAre());
}

TEST_F(CheckpointFolderTest, RefusesAManifestThatWouldNotReadBack) {
  CheckpointManifest manifest = SampleManifest({1, 1}, 2, SmallTensors());
  manifest.tensors.tensors[0].name = "\xff";
  CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  EXPECT_TRUE(absl::IsInvalidArgument(WriteCheckpoint(&folder, &manifest)));
  EXPECT_FALSE(folder.List()->at(0).manifest);
}

TEST_F(CheckpointFolderTest, RefusesAManifestThatIsTooLongToBeRead) {
  ASSERT_EQ(Write({1, 1}), absl::OkStatus());
  CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  CheckpointManifest manifest = SampleManifest({1, 2}, 2, SmallTensors());
  ASSERT_EQ(WriteCheckpoint(&folder, &manifest), absl::OkStatus());
  const auto length =
      static_cast<int64_t>(disk_.Bytes("/disk/job/1-2/manifest.json").size());
  EXPECT_EQ(folder.Seal(manifest, length), absl::OkStatus());
  ASSERT_TRUE(disk_.Remove("/disk/job/1-2/manifest.json").ok());
  EXPECT_EQ(folder.Seal(manifest, length - 1),
            absl::InvalidArgumentError(
                absl::StrCat("the size of manifest.json is ", length,
                             " bytes; allowed: at most ", length - 1)));
  EXPECT_FALSE(folder.List()->back().manifest);
}

TEST_F(CheckpointFolderTest, AFolderThatCannotBeReadIsAnErrorAndNotSkipped) {
  const CheckpointFolder folder = OpenFolder(&disk_, "/disk", kLife);
  EXPECT_TRUE(folder.List()->empty());  // the job has no folder yet
  ASSERT_EQ(Write({1, 1}), absl::OkStatus());
  ASSERT_EQ(Write({1, 2}), absl::OkStatus());
  // The folder of the job, then each checkpoint's.
  for (int i = 0; i < 3; ++i) {
    disk_.FailAt(disk_.num_operations() + i, SimDisk::Fault::kFail,
                 absl::UnavailableError("EIO"));
    EXPECT_EQ(folder.List().status(), absl::UnavailableError("EIO"));
    disk_.Recover();
  }
}

TEST_F(CheckpointFolderTest, RefusesJobsThatAreNoFoldersAndPathsThatAreNot) {
  for (const char* job : {"", ".", "..", "a/b"}) {
    const absl::Status status =
        CheckpointFolder::Open(&disk_, "/disk", job, kLife).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << job;
    EXPECT_THAT(std::string(status.message()), HasSubstr("job is \""));
  }
  EXPECT_TRUE(absl::IsNotFound(
      CheckpointFolder::Open(&disk_, "/missing", "job", kLife).status()));
}

}  // namespace
}  // namespace agg
