#include "server/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "server/base/file_system.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/checkpoint/sample_checkpoint.h"

namespace agg {
namespace {

using Stage = CheckpointProgress::Stage;

constexpr CheckpointId kFirst{1000, 10};
constexpr CheckpointId kSecond{1000, 20};
constexpr int kArrays = 3;
// Elements between the beginnings of two slices: more than each has.
constexpr int64_t kStride = 16;

// Something that a thread waits for.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(&mutex_);
    while (!open_) changed_.Wait(&mutex_);
    open_ = false;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
};

// A disk so slow that a new file waits until the test lets it pass.
class SlowDisk : public SimDisk {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    reached.Open();
    may_create.Pass();
    return SimDisk::Create(path);
  }
  Gate reached;
  Gate may_create;
};

ShardArrays Arrays() {
  ShardArrays arrays;
  arrays.plan = *MakeShardPlan(SmallTensors(), 1);
  arrays.num_arrays = kArrays;
  for (size_t i = 0; i < arrays.plan.slices.size(); ++i) {
    arrays.slice_begins.push_back(static_cast<int64_t>(i) * kStride);
  }
  arrays.num_elements =
      static_cast<int64_t>(arrays.plan.slices.size()) * kStride;
  return arrays;
}

// The sample's values at their places.
CheckpointWriter::CopyArray CopyOf(const CheckpointId& id) {
  return [id](int array, absl::Span<float> to) {
    const ShardArrays arrays = Arrays();
    for (const Slice& slice : arrays.plan.slices) {
      const std::vector<float> values = SampleValues(id, slice, array);
      std::copy(values.begin(), values.end(),
                to.begin() + arrays.slice_begins[slice.index]);
    }
    return absl::OkStatus();
  };
}

class CheckpointWriterTest : public testing::Test {
 protected:
  CheckpointWriterTest() {
    EXPECT_TRUE(disk_.CreateFolder("/disk").ok());
    writer_ =
        *CheckpointWriter::Create(OpenFolder(&disk_, "/disk", 1), Arrays());
  }

  void WaitForPart() {
    while (writer_->progress().stage == Stage::kWriting) {
      std::this_thread::yield();
    }
  }

  // The part is what the sample says, once it is sealed.
  void ExpectWritten(const CheckpointId& id) {
    const CheckpointProgress progress = writer_->progress();
    ASSERT_EQ(progress.stage, Stage::kWritten) << progress.error;
    EXPECT_TRUE(progress.id == id);
    CheckpointFolder folder = OpenFolder(&disk_, "/disk", 1);
    CheckpointManifest manifest = SampleManifest(id, 1, SmallTensors());
    manifest.parts = {progress.part};
    disk_.may_create.Open();
    ASSERT_EQ(folder.Seal(manifest), absl::OkStatus());
    absl::StatusOr<CheckpointReader> reader =
        CheckpointReader::Create(&disk_, folder.PathOf(id), manifest);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->VerifyPart(0), absl::OkStatus());
    EXPECT_EQ(CheckSlices(&*reader, 1), absl::OkStatus());
  }

  SlowDisk disk_;
  std::unique_ptr<CheckpointWriter> writer_;
};

TEST_F(CheckpointWriterTest, WritesInTheBackgroundWhatWasCopied) {
  EXPECT_EQ(writer_->progress().stage, Stage::kNone);
  ASSERT_EQ(writer_->Capture(kFirst, CopyOf(kFirst)), absl::OkStatus());
  // The file does not exist yet, and the round has long gone on.
  disk_.reached.Pass();
  EXPECT_EQ(writer_->progress().stage, Stage::kWriting);
  disk_.may_create.Open();
  WaitForPart();
  ExpectWritten(kFirst);
}

TEST_F(CheckpointWriterTest, SkipsAndCountsWhatComesMeanwhile) {
  ASSERT_EQ(writer_->Capture(kFirst, CopyOf(kFirst)), absl::OkStatus());
  disk_.reached.Pass();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(writer_->Capture(kSecond, CopyOf(kSecond)),
              absl::FailedPreconditionError(
                  "checkpoint 1000-10 is still being written"));
  }
  EXPECT_EQ(writer_->progress().num_skipped, 2);
  disk_.may_create.Open();
  WaitForPart();
  ExpectWritten(kFirst);
  ASSERT_EQ(writer_->Capture(kSecond, CopyOf(kSecond)), absl::OkStatus());
  disk_.may_create.Open();
  WaitForPart();
  ExpectWritten(kSecond);
}

TEST_F(CheckpointWriterTest, AFailureFailsThisCheckpointAlone) {
  // The look at what is there, four operations before the file, and the file.
  disk_.FailAt(disk_.num_operations() + 5, SimDisk::Fault::kFail,
               absl::ResourceExhaustedError("no room"));
  ASSERT_EQ(writer_->Capture(kFirst, CopyOf(kFirst)), absl::OkStatus());
  disk_.may_create.Open();
  WaitForPart();
  EXPECT_EQ(writer_->progress().stage, Stage::kFailed);
  EXPECT_EQ(writer_->progress().error, absl::ResourceExhaustedError("no room"));
  disk_.Recover();
  ASSERT_EQ(writer_->Capture(kSecond, CopyOf(kSecond)), absl::OkStatus());
  disk_.may_create.Open();
  WaitForPart();
  ExpectWritten(kSecond);
}

TEST_F(CheckpointWriterTest, AnErrorOfTheCopyIsReturnedAndWritesNothing) {
  const absl::Status lost = absl::UnavailableError("the device is lost");
  EXPECT_EQ(
      writer_->Capture(kFirst, [&](int, absl::Span<float>) { return lost; }),
      lost);
  EXPECT_EQ(writer_->progress().stage, Stage::kFailed);
  EXPECT_EQ(writer_->progress().error, lost);
  EXPECT_TRUE(absl::IsNotFound(disk_.List("/disk/job").status()));
  ASSERT_EQ(writer_->Capture(kSecond, CopyOf(kSecond)), absl::OkStatus());
  disk_.may_create.Open();
  WaitForPart();
  ExpectWritten(kSecond);
}

TEST_F(CheckpointWriterTest, EndsInTheMidstOfAPart) {
  ASSERT_EQ(writer_->Capture(kFirst, CopyOf(kFirst)), absl::OkStatus());
  disk_.reached.Pass();
  // The destructor says so before it joins; the file is let pass after that, or
  // before. Both end, and no part of a part stays.
  disk_.may_create.Open();
  writer_ = nullptr;
  const auto names = disk_.List("/disk/job/1000-10");
  if (absl::IsNotFound(names.status())) return;
  for (const std::string& name : *names) {
    EXPECT_EQ(name, "part-00000-of-00001.npz");
  }
}

TEST_F(CheckpointWriterTest, ParametersThatAreNotFiniteAreNotWritten) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::infinity()}) {
    const auto copy = CopyOf(kFirst);
    ASSERT_EQ(writer_->Capture(kFirst,
                               [&](int array, absl::Span<float> to) {
                                 const absl::Status status = copy(array, to);
                                 if (array == 0) to[0] = value;
                                 return status;
                               }),
              absl::OkStatus());
    WaitForPart();
    EXPECT_EQ(writer_->progress().stage, Stage::kFailed);
    EXPECT_THAT(std::string(writer_->progress().error.message()),
                testing::HasSubstr("parameters of tensor 0 "));
    EXPECT_TRUE(absl::IsNotFound(disk_.List("/disk/job/1000-10").status()));
  }
}

TEST_F(CheckpointWriterTest, APartThatIsNotSealedGoesAndOneThatWasThereStays) {
  ASSERT_EQ(writer_->Capture(kFirst, CopyOf(kFirst)), absl::OkStatus());
  disk_.may_create.Open();
  WaitForPart();
  // Another one is meant.
  ASSERT_EQ(writer_->Discard(kSecond), absl::OkStatus());
  EXPECT_THAT(*disk_.List("/disk/job/1000-10"), testing::SizeIs(1));
  ASSERT_EQ(writer_->Discard(kFirst), absl::OkStatus());
  EXPECT_TRUE(absl::IsNotFound(disk_.List("/disk/job/1000-10").status()));
  // Written, sealed perhaps, and taken once more.
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(writer_->Capture(kFirst, CopyOf(kFirst)), absl::OkStatus());
    disk_.may_create.Open();
    WaitForPart();
  }
  ASSERT_EQ(writer_->Discard(kFirst), absl::OkStatus());
  EXPECT_TRUE(disk_.List("/disk/job/1000-10").ok());
}

TEST_F(CheckpointWriterTest, OneThatIsBeingWrittenGoesWhenItIs) {
  ASSERT_EQ(writer_->Capture(kFirst, CopyOf(kFirst)), absl::OkStatus());
  disk_.reached.Pass();
  ASSERT_EQ(writer_->Discard(kFirst), absl::OkStatus());
  disk_.may_create.Open();
  WaitForPart();
  EXPECT_EQ(writer_->progress().stage, Stage::kNone);
  EXPECT_TRUE(absl::IsNotFound(disk_.List("/disk/job/1000-10").status()));
}

TEST(CheckpointWriterMemoryTest, MemoryThatIsNotThereIsAnError) {
  SimDisk disk;
  ASSERT_TRUE(disk.CreateFolder("/disk").ok());
  ShardArrays arrays = Arrays();
  arrays.num_elements = int64_t{1} << 60;  // more than a vector can have
  EXPECT_TRUE(absl::IsResourceExhausted(
      CheckpointWriter::Create(OpenFolder(&disk, "/disk", 1), arrays)
          .status()));
}

TEST(CheckpointWriterMemoryTest, IsThatOfAllArrays) {
  EXPECT_EQ(
      CheckpointWriter::NumBytes(Arrays()),
      4 * 3 * kStride * static_cast<int64_t>(Arrays().plan.slices.size()));
}

}  // namespace
}  // namespace agg
