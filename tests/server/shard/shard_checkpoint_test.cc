// From a shard's memory to files and back, for other numbers of shards.
#include "server/shard/shard_checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"
#include "proto/shard_plan.h"
#include "server/base/file_system.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/ingest/shard_layout.h"
#include "server/params/parameter_store.h"
#include "server/params/snapshot.h"
#include "server/shard/checkpoint_keeper.h"
#include "tests/server/base/forwarding_files.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/checkpoint/sample_checkpoint.h"

namespace agg {
namespace {

constexpr CheckpointId kId{1000, 20};

OptimizerOptions Adam() {
  OptimizerOptions options;
  options.kind = OptimizerKind::kAdam;
  return options;
}

// One shard's memory.
struct Shard {
  Shard(int num_shards, int ordinal, const OptimizerOptions& optimizer)
      : layout(*MakeShardLayout(SmallTensors(), num_shards, ordinal)),
        store(*ParameterStore::Create(
            backend.get(), optimizer,
            std::max(layout.num_elements, kLayoutAlignment), DType::kBF16)) {}

  std::vector<Buffer*> arrays() const {
    return {store->master(), store->state0(), store->state1()};
  }

  std::unique_ptr<Backend> backend = *MakeBackend("cpu", {1});
  ShardLayout layout;
  std::unique_ptr<ParameterStore> store;
};

// Calls `visit` for each slice of each array with the sample's values.
void ForEachSlice(const Shard& shard,
                  const std::function<void(int array, const ElementRange&,
                                           const std::vector<float>&)>& visit) {
  for (int array = 0; array < 3; ++array) {
    for (size_t i = 0; i < shard.layout.slices.size(); ++i) {
      const Slice& slice = shard.layout.plan.slices[shard.layout.slices[i]];
      visit(array, shard.layout.ranges[i], SampleValues(kId, slice, array));
    }
  }
}

bool SameBits(const float* a, const std::vector<float>& b) {
  return std::memcmp(a, b.data(), b.size() * sizeof(float)) == 0;
}

class ShardCheckpointTest : public testing::Test {
 protected:
  ShardCheckpointTest() { EXPECT_TRUE(disk_.CreateFolder("/disk").ok()); }

  // Writes the part of a shard that holds the sample's values.
  CheckpointPart WritePart(int num_shards, int ordinal) {
    Shard shard(num_shards, ordinal, Adam());
    std::vector<std::vector<float>> arrays(
        3, std::vector<float>(shard.layout.num_elements, 77.0f));
    ForEachSlice(shard, [&](int array, const ElementRange& range,
                            const std::vector<float>& values) {
      std::copy(values.begin(), values.end(),
                arrays[array].begin() + range.begin);
    });
    const bool empty = arrays[0].empty();
    for (int i = 0; i < 3 && !empty; ++i) {
      EXPECT_TRUE(shard.backend->Write(arrays[i], shard.arrays()[i]).ok());
    }
    const std::unique_ptr<CheckpointWriter> writer = *CheckpointWriter::Create(
        OpenFolder(&disk_, "/disk", 1), ArraysOf(shard.layout, Adam()));
    EXPECT_EQ(
        writer->Capture(kId, CopyFrom(shard.backend.get(), shard.store.get())),
        absl::OkStatus());
    // The next round changes them at once.
    for (Buffer* array : shard.arrays()) {
      if (empty) break;
      EXPECT_TRUE(
          shard.backend
              ->Write(std::vector<float>(shard.layout.num_elements), array)
              .ok());
    }
    while (writer->progress().stage == CheckpointProgress::Stage::kWriting) {
      std::this_thread::yield();
    }
    EXPECT_EQ(writer->progress().error, absl::OkStatus());
    return writer->progress().part;
  }

  CheckpointManifest WriteAll(int num_shards) {
    CheckpointManifest manifest =
        SampleManifest(kId, num_shards, SmallTensors());
    for (int i = 0; i < num_shards; ++i) {
      manifest.parts.push_back(WritePart(num_shards, i));
    }
    CheckpointFolder folder = OpenFolder(&disk_, "/disk", 1);
    EXPECT_EQ(folder.Seal(manifest), absl::OkStatus());
    path_ = folder.PathOf(kId);
    return manifest;
  }

  CheckpointReader Reader(const CheckpointManifest& manifest) {
    return *CheckpointReader::Create(&disk_, path_, manifest);
  }

  SimDisk disk_;
  std::string path_;
};

void ExpectSample(const Shard& shard, const Snapshot& snapshot) {
  const float* const published =
      reinterpret_cast<const float*>(snapshot.data(DType::kF32));
  if (shard.layout.num_elements == 0) return;
  std::vector<std::vector<float>> arrays;
  for (Buffer* array : shard.arrays()) {
    arrays.emplace_back(shard.layout.num_elements);
    ASSERT_TRUE(
        shard.backend->Read(*array, absl::MakeSpan(arrays.back())).ok());
  }
  ForEachSlice(shard, [&](int array, const ElementRange& range,
                          const std::vector<float>& values) {
    EXPECT_TRUE(SameBits(&arrays[array][range.begin], values)) << array;
    if (array == 0) {
      EXPECT_TRUE(SameBits(&published[range.begin], values));
    }
  });
}

TEST_F(ShardCheckpointTest, AnyNumberOfShardsHasTheSameBits) {
  const CheckpointManifest manifest =
      WriteAll(9);                                 // with shards without slices
  for (const int num_shards : {1, 3, 4, 7, 64}) {  // 64: most have no slices
    for (int ordinal = 0; ordinal < num_shards; ++ordinal) {
      Shard shard(num_shards, ordinal, Adam());
      CheckpointReader reader = Reader(manifest);
      ASSERT_EQ(VerifyShare(&reader, ordinal, num_shards), absl::OkStatus());
      const auto snapshot =
          RestoreArrays(&reader, shard.layout, Adam(), shard.backend.get(),
                        shard.store.get());
      ASSERT_TRUE(snapshot.ok()) << snapshot.status();
      ExpectSample(shard, **snapshot);
    }
  }
}

// The copy in 16 bits is made as from a seed of these parameters.
TEST_F(ShardCheckpointTest, TheNarrowedCopyIsThere) {
  const CheckpointManifest manifest = WriteAll(1);
  Shard shard(1, 0, Adam());
  CheckpointReader reader = Reader(manifest);
  const auto snapshot = RestoreArrays(&reader, shard.layout, Adam(),
                                      shard.backend.get(), shard.store.get());
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  int revoked = 0;
  const auto seed = *shard.store->NextSnapshot(&revoked);
  std::memcpy(seed->buffers()->f32->host(), (*snapshot)->data(DType::kF32),
              shard.layout.num_elements * sizeof(float));
  ASSERT_TRUE(shard.backend
                  ->Load(Adam(), *seed->buffers()->f32, shard.store->master(),
                         shard.store->state0(), shard.store->state1(),
                         seed->buffers()->narrowed.get(), DType::kBF16)
                  .ok());
  EXPECT_EQ(
      std::memcmp(seed->data(DType::kBF16), (*snapshot)->data(DType::kBF16),
                  shard.layout.num_elements * 2),
      0);
}

TEST_F(ShardCheckpointTest, EachPartIsVerifiedByOneShard) {
  const CheckpointManifest manifest = WriteAll(4);
  disk_.FlipBit(path_ + "/" + manifest.parts[2].file, 400);
  for (int ordinal = 0; ordinal < 3; ++ordinal) {
    CheckpointReader reader = Reader(manifest);
    EXPECT_EQ(absl::IsDataLoss(VerifyShare(&reader, ordinal, 3)), ordinal == 2);
  }
}

TEST_F(ShardCheckpointTest, OtherArraysAreRefused) {
  const CheckpointManifest manifest = WriteAll(1);
  OptimizerOptions sgd;
  sgd.momentum = 0.9f;
  Shard shard(1, 0, sgd);
  CheckpointReader reader = Reader(manifest);
  EXPECT_EQ(RestoreArrays(&reader, shard.layout, sgd, shard.backend.get(),
                          shard.store.get())
                .status(),
            absl::InvalidArgumentError(
                "checkpoint.state_arrays is 2; allowed: 1, as configured"));
}

// How a shard looks at folders that take their time.

// A disk whose listings of a job's folder wait until all that are awaited have
// begun.
class MeetingFiles : public ForwardingFiles {
 public:
  MeetingFiles() : ForwardingFiles(&disk_) {
    EXPECT_TRUE(disk_.CreateFolder("/disk").ok());
  }

  // Each later listing of another folder waits until `number` have begun.
  void Await(int number) {
    MutexLock lock(&mutex_);
    awaited_ = number;
    begun_ = 0;
  }

  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    MutexLock lock(&mutex_);
    ++begun_;
    changed_.NotifyAll();
    while (begun_ < awaited_) changed_.Wait(&mutex_);
    return ForwardingFiles::List(path);
  }

 private:
  SimDisk disk_;
  Mutex mutex_;
  CondVar changed_;
  int awaited_ = 0;
  int begun_ = 0;
};

CheckpointFolder FolderOf(FileSystem* files, const std::string& job) {
  return *CheckpointFolder::Make(files, "/disk", job, /*life=*/1);
}

// One after the other they would take kPatience each, in vain.
TEST(CheckpointKeeperTest, LooksAtBothFoldersAtTheSameTime) {
  MeetingFiles files;
  CheckpointKeeper keeper;
  keeper.SetFolder(FolderOf(&files, "job"), &files, FolderOf(&files, "other"));
  files.Await(2);
  const auto [own, other] = keeper.ListAll();
  EXPECT_EQ(own.error, "");
  EXPECT_EQ(own.folder, "/disk/job");
  EXPECT_EQ(other.error, "");
  EXPECT_EQ(other.folder, "/disk/other");
}

// Both wait for the same listing, and both get it.
TEST(CheckpointKeeperTest, WhoAsksAtTheSameTimeGetsTheSameAnswer) {
  for (int i = 0; i < 50; ++i) {
    MeetingFiles files;
    CheckpointKeeper keeper;
    keeper.SetFolder(FolderOf(&files, "job"), &files, {});
    files.Await(2);
    auto first = std::async(std::launch::async, [&] { return keeper.List(); });
    auto second = std::async(std::launch::async, [&] { return keeper.List(); });
    files.Await(0);
    // A listing that begins from here on waits for nobody.
    files.List("/disk").IgnoreError();
    EXPECT_EQ(first.get().error, "");
    EXPECT_EQ(second.get().error, "");
  }
}

}  // namespace
}  // namespace agg
