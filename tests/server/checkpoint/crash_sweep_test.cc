// A job that writes checkpoints dies, or its disk fails, at each operation on
// files; the machine may crash on top of it. Whatever happens, the newest
// checkpoint that was acknowledged, or a newer one, is found with its bits.
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/checkpoint_state.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/checkpoint/sample_checkpoint.h"

namespace agg {
namespace {

using Kept = SimDisk::Kept;
using Fault = SimDisk::Fault;

constexpr int kNumShards = 2;
constexpr int kKeep = 2;

// Where the shards write: one folder for all, or a volume for each.
enum class Place { kShared, kVolumes };

std::string PathOf(Place place, int shard) {
  return place == Place::kShared ? "/disk" : absl::StrCat("/disk", shard);
}

// Each operation is tried many times: one slice for each shard.
Manifest FewTensors() {
  Manifest manifest;
  manifest.tensors = {{"w", {3}, "", false}, {"b", {2}, "", false}};
  return manifest;
}

// A job of two shards on one simulated disk. A new one is a new process each.
class Job {
 public:
  Job(SimDisk* disk, Place place, uint64_t life) : place_(place) {
    for (int i = 0; i < kNumShards; ++i) {
      absl::StatusOr<CheckpointFolder> folder = CheckpointFolder::Open(
          disk, PathOf(place, i), "job", life + static_cast<uint64_t>(i));
      if (folder.ok()) folders_.push_back(*std::move(folder));
    }
  }

  // Whether a checkpoint was acknowledged: sealed in at least one folder.
  bool Checkpoint(const CheckpointId& id) {
    if (folders_.size() != kNumShards) return false;
    CheckpointManifest manifest = SampleManifest(id, kNumShards, FewTensors());
    const ShardPlan plan = *MakeShardPlan(manifest.tensors, kNumShards);
    for (int i = 0; i < kNumShards; ++i) {
      const auto part = folders_[i].WritePart(id, SampleSource(id, &plan, i));
      if (!part.ok()) return false;
      manifest.parts.push_back(*part);
    }
    bool acknowledged = false;
    for (CheckpointFolder& folder : folders_) {
      if (!folder.Seal(manifest).ok()) continue;
      acknowledged = true;
      (void)folder.Retire(kKeep);
    }
    return acknowledged;
  }

  // As shards and coordinator do it at a start: all inventories, the newest
  // complete one, its manifest from whoever has it, each part by its reader.
  absl::optional<CheckpointId> Restore(SimDisk* disk) {
    std::vector<CheckpointListing> listings;
    for (const CheckpointFolder& folder : folders_) {
      const auto listed = folder.List();
      EXPECT_TRUE(listed.ok()) << listed.status();
      // What has a manifest has all its parts, also while it is retired.
      const size_t num_parts = place_ == Place::kShared ? kNumShards : 1;
      for (const CheckpointState& state : *listed) {
        if (state.manifest) {
          EXPECT_EQ(state.parts.size(), num_parts)
              << CheckpointFolderName(state.id);
        }
      }
      listings.push_back({"/disk", "", *listed});
    }
    const CheckpointChoice choice = ChooseCheckpoint(listings, absl::nullopt);
    const absl::optional<CheckpointId> id = choice.id;
    if (!id.has_value()) return id;
    // No crash leaves a newest one that a person would be asked about.
    EXPECT_EQ(MissingText(choice, {}), "");
    absl::StatusOr<CheckpointManifest> manifest = absl::NotFoundError("");
    for (const CheckpointFolder& folder : folders_) {
      if (manifest.ok()) break;
      manifest = ReadCheckpointManifest(disk, folder.PathOf(*id), *id);
    }
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    if (!manifest.ok()) return absl::nullopt;
    for (int i = 0; i < kNumShards; ++i) {
      CheckpointReader reader =
          *CheckpointReader::Create(disk, folders_[i].PathOf(*id), *manifest);
      EXPECT_EQ(reader.VerifyPart(i), absl::OkStatus());
      if (place_ == Place::kShared) {
        EXPECT_EQ(CheckSlices(&reader, kNumShards), absl::OkStatus());
      }
    }
    // A checkpoint that is gone on from is sealed everywhere first: else a
    // volume without its manifest would take its part for garbage.
    for (CheckpointFolder& folder : folders_) (void)folder.Seal(*manifest);
    return id;
  }

  std::vector<CheckpointFolder>& folders() { return folders_; }

 private:
  const Place place_;
  std::vector<CheckpointFolder> folders_;
};

struct Trial {
  SimDisk disk;
  absl::optional<CheckpointId> acknowledged;  // the newest
};

// Three checkpoints, so that one is retired; the last is from after a rewind
// that counts versions again.
void Train(Place place, Trial* trial) {
  Job job(&trial->disk, place, /*life=*/0x100);
  for (const CheckpointId& id :
       std::vector<CheckpointId>{{1000, 10}, {1000, 20}, {2000, 15}}) {
    if (job.Checkpoint(id)) trial->acknowledged = id;
  }
}

void MakeDisk(Place place, Trial* trial) {
  for (int i = 0; i < kNumShards; ++i) {
    ASSERT_TRUE(trial->disk.CreateFolder(PathOf(place, i)).ok());
  }
  ASSERT_TRUE(trial->disk.SyncFolder("/").ok());
}

// Restores, goes on with one more checkpoint, loses power, restores again.
void CheckRestart(Place place, Trial* trial) {
  Job job(&trial->disk, place, /*life=*/0x200);
  const absl::optional<CheckpointId> found = job.Restore(&trial->disk);
  if (trial->acknowledged.has_value()) {
    ASSERT_TRUE(found.has_value());
    EXPECT_FALSE(*found < *trial->acknowledged)
        << CheckpointFolderName(*found) << " is older than "
        << CheckpointFolderName(*trial->acknowledged);
  }
  const CheckpointId next{3000, 1};
  ASSERT_TRUE(job.Checkpoint(next));
  trial->disk.LosePower(Kept::kSynced, Kept::kSynced);
  Job after(&trial->disk, place, /*life=*/0x300);
  const absl::optional<CheckpointId> again = after.Restore(&trial->disk);
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(*again == next) << CheckpointFolderName(*again);
  // What was not synced of a removal goes with the next one: then all that is
  // left is sealed, and no more than is kept.
  for (CheckpointFolder& folder : after.folders()) {
    ASSERT_TRUE(folder.Retire(kKeep).ok());
    const std::vector<CheckpointState> states = *folder.List();
    EXPECT_LE(states.size(), static_cast<size_t>(kKeep));
    for (const CheckpointState& state : states) EXPECT_TRUE(state.manifest);
  }
}

// How the machine comes back after the fault.
struct World {
  const char* name;
  bool power_lost;
  Kept names;
  Kept data;
};
const World kWorlds[] = {
    {"the processes died alone", false, Kept::kAll, Kept::kAll},
    {"what was synced is there", true, Kept::kSynced, Kept::kSynced},
    {"all is there", true, Kept::kAll, Kept::kAll},
    {"names went ahead of data", true, Kept::kAll, Kept::kSynced},
    {"data went ahead of names", true, Kept::kSynced, Kept::kAll},
    {"some names, all data", true, Kept::kSome, Kept::kAll},
    {"the other names, no data", true, Kept::kOthers, Kept::kSynced},
};

void Sweep(Place place, Fault fault, const absl::Status& error) {
  Trial undisturbed;
  MakeDisk(place, &undisturbed);
  const int64_t first = undisturbed.disk.num_operations();
  Train(place, &undisturbed);
  const int64_t end = undisturbed.disk.num_operations();
  ASSERT_GT(end - first, 80);
  ASSERT_TRUE(undisturbed.acknowledged.has_value());
  for (int64_t number = first; number < end; ++number) {
    for (const World& world : kWorlds) {
      SCOPED_TRACE(absl::StrCat("operation ", number, ", ", world.name));
      Trial trial;
      MakeDisk(place, &trial);
      trial.disk.FailAt(number, fault, error);
      Train(place, &trial);
      trial.disk.Recover();
      if (world.power_lost) trial.disk.LosePower(world.names, world.data);
      CheckRestart(place, &trial);
      if (testing::Test::HasFailure()) return;
    }
  }
}

struct Case {
  const char* name;
  Place place;
  Fault fault;
  absl::Status error;
};

class CrashSweepTest : public testing::TestWithParam<Case> {};

TEST_P(CrashSweepTest, TheNewestAcknowledgedCheckpointIsFound) {
  Sweep(GetParam().place, GetParam().fault, GetParam().error);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Place place : {Place::kShared, Place::kVolumes}) {
    const auto add = [&](const char* name, const char* name_of_volumes,
                         Fault fault, absl::StatusCode code) {
      cases.push_back({place == Place::kShared ? name : name_of_volumes, place,
                       fault, absl::Status(code, name)});
    };
    add("Killed", "KilledVolumes", Fault::kDie, absl::StatusCode::kCancelled);
    add("NoSpace", "NoSpaceVolumes", Fault::kShort,
        absl::StatusCode::kResourceExhausted);
    add("InputOutput", "InputOutputVolumes", Fault::kFail,
        absl::StatusCode::kInternal);
    add("DoneAndFailed", "DoneAndFailedVolumes", Fault::kFailAfter,
        absl::StatusCode::kInternal);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Faults, CrashSweepTest, testing::ValuesIn(Cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return info.param.name;
                         });

// A disk that stays full or read-only: every checkpoint fails, with the file's
// name, and those of before stay.
TEST(FailingDiskTest, AnErrorThatStaysLeavesTheOldCheckpoints) {
  Trial trial;
  MakeDisk(Place::kShared, &trial);
  Train(Place::kShared, &trial);
  for (int64_t i = 0; i < 40; ++i) {
    // From some operation on nothing works any more.
    trial.disk.FailAt(trial.disk.num_operations() + 2 + i, Fault::kDie,
                      absl::ResourceExhaustedError("EROFS"));
    Job job(&trial.disk, Place::kShared, /*life=*/0x400);
    EXPECT_FALSE(job.Checkpoint({4000, static_cast<uint64_t>(i)}));
    trial.disk.Recover();
    Job after(&trial.disk, Place::kShared, /*life=*/0x500);
    const absl::optional<CheckpointId> found = after.Restore(&trial.disk);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(*found == *trial.acknowledged);
  }
}

}  // namespace
}  // namespace agg
