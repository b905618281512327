#include "server/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/crc32c.h"
#include "server/base/clock.h"
#include "server/base/file_system.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/rpc/phase_conversion.h"
#include "tests/server/base/forwarding_files.h"
#include "tests/server/base/sim_disk.h"
#include "tests/server/checkpoint/sample_checkpoint.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr CheckpointId kOld{1000, 10};
constexpr CheckpointId kNew{1000, 20};
const char* const kFiles[] = {"manifest.json", "part-00000-of-00002.npz",
                              "part-00001-of-00002.npz"};

std::string NewFile(const std::string& file) {
  return absl::StrCat("/disk/job/", CheckpointFolderName(kNew), "/", file);
}

// Two checkpoints, the newer of which suffers.
class DamageTest : public testing::Test {
 protected:
  DamageTest() {
    EXPECT_TRUE(disk_.CreateFolder("/disk").ok());
    CheckpointFolder folder = OpenFolder(&disk_, "/disk", 1);
    for (const CheckpointId& id : {kOld, kNew}) {
      CheckpointManifest manifest = SampleManifest(id, 2, SmallTensors());
      EXPECT_EQ(WriteCheckpoint(&folder, &manifest), absl::OkStatus());
    }
  }

  // Whether the checkpoint is good in all parts, as shards ask.
  absl::Status Check(const CheckpointId& id) {
    const std::string folder = OpenFolder(&disk_, "/disk", 2).PathOf(id);
    const absl::StatusOr<CheckpointManifest> manifest =
        ReadCheckpointManifest(&disk_, folder, id);
    if (!manifest.ok()) return manifest.status();
    absl::StatusOr<CheckpointReader> reader =
        CheckpointReader::Create(&disk_, folder, *manifest);
    absl::Status status = reader.status();
    for (int i = 0; i < manifest->num_shards && status.ok(); ++i) {
      status = reader->VerifyPart(i);
    }
    return status;
  }

  // `file` of the newer one is named, with an error after which the one before
  // is taken.
  void ExpectRefused(const std::string& file) {
    const absl::Status status = Check(kNew);
    EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsNotFound(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(NewFile(file)));
  }

  SimDisk disk_;
};

// Counts what is read, of the files of another one.
class CountedFiles : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;

  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    auto file = ForwardingFiles::Open(path);
    if (!file.ok()) return file.status();
    return std::make_unique<File>(*std::move(file), &num_read_, &largest_);
  }
  int64_t num_read() const { return num_read_; }
  int64_t largest() const { return largest_; }

 private:
  class File : public ReadableFile {
   public:
    File(std::unique_ptr<ReadableFile> file, int64_t* num_read,
         int64_t* largest)
        : file_(std::move(file)), num_read_(num_read), largest_(largest) {}
    int64_t num_bytes() const override { return file_->num_bytes(); }
    absl::Status Read(int64_t offset, absl::Span<char> bytes) override {
      const auto size = static_cast<int64_t>(bytes.size());
      *num_read_ += size;
      *largest_ = std::max(*largest_, size);
      return file_->Read(offset, bytes);
    }

   private:
    const std::unique_ptr<ReadableFile> file_;
    int64_t* const num_read_;
    int64_t* const largest_;
  };

  int64_t num_read_ = 0;
  int64_t largest_ = 0;
};

// A checkpoint that takes hours to read is read once; and each piece of it is
// progress, so that nobody takes it for one that hangs.
TEST_F(DamageTest, EachByteOfAPartThatIsLoadedIsReadOnce) {
  const std::string folder = OpenFolder(&disk_, "/disk", 2).PathOf(kNew);
  const auto manifest = ReadCheckpointManifest(&disk_, folder, kNew);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  CountedFiles files(&disk_);
  auto reader = CheckpointReader::Create(&files, folder, *manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  Progress progress;
  reader->SetProgress(&progress);
  for (const int part : {0, 1}) {
    const int64_t before = files.num_read();
    for (const int32_t slice : reader->plan().slices_of_shard[part]) {
      for (int array = 0; array <= manifest->num_state_arrays; ++array) {
        std::vector<float> values(
            static_cast<size_t>(reader->plan().slices[slice].num_elements));
        const uint64_t moved = progress.count();
        ASSERT_EQ(reader->ReadSlice(slice, array, absl::MakeSpan(values)),
                  absl::OkStatus());
        EXPECT_GT(progress.count(), moved);
      }
    }
    EXPECT_EQ(reader->VerifyPart(part), absl::OkStatus());
    EXPECT_EQ(files.num_read() - before, manifest->parts[part].num_bytes);
  }
  EXPECT_LE(files.largest(), int64_t{1} << 20);
}

// What the slices' own checksums do not cover is found all the same.
TEST_F(DamageTest, WhatWasReadSliceBySliceIsComparedAsAWhole) {
  const std::string path = NewFile("part-00000-of-00002.npz");
  // The archive's last bytes belong to no slice.
  disk_.FlipBit(path, static_cast<int64_t>(8 * disk_.Bytes(path).size()) - 1);
  const std::string folder = OpenFolder(&disk_, "/disk", 2).PathOf(kNew);
  const auto manifest = ReadCheckpointManifest(&disk_, folder, kNew);
  auto reader = CheckpointReader::Create(&disk_, folder, *manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const int32_t slice : reader->plan().slices_of_shard[0]) {
    std::vector<float> values(
        static_cast<size_t>(reader->plan().slices[slice].num_elements));
    ASSERT_EQ(reader->ReadSlice(slice, 0, absl::MakeSpan(values)),
              absl::OkStatus());
  }
  EXPECT_TRUE(absl::IsDataLoss(reader->VerifyPart(0)));
}

TEST_F(DamageTest, WithoutAnyBothAreGood) {
  EXPECT_EQ(Check(kOld), absl::OkStatus());
  EXPECT_EQ(Check(kNew), absl::OkStatus());
}

TEST_F(DamageTest, EachFlippedBitIsRefusedByName) {
  for (const char* file : kFiles) {
    const std::string path = NewFile(file);
    const auto num_bits = static_cast<int64_t>(8 * disk_.Bytes(path).size());
    // Each bit of the ends; one in each third byte between them.
    for (int64_t bit = 0; bit < num_bits;
         bit += bit < 600 || bit > num_bits - 600 ? 1 : 23) {
      SCOPED_TRACE(absl::StrCat(file, " bit ", bit));
      disk_.FlipBit(path, bit);
      ExpectRefused(file);
      if (HasFailure()) return;
      disk_.FlipBit(path, bit);
    }
  }
  EXPECT_EQ(Check(kNew), absl::OkStatus());
}

TEST_F(DamageTest, EachCutFileIsRefusedByName) {
  for (const char* file : kFiles) {
    const std::string path = NewFile(file);
    const std::string bytes = disk_.Bytes(path);
    for (size_t length = 0; length < bytes.size();
         length += length < 100 || length + 100 > bytes.size() ? 1 : 7) {
      SCOPED_TRACE(absl::StrCat(file, " cut to ", length));
      disk_.Cut(path, static_cast<int64_t>(length));
      ExpectRefused(file);
      if (HasFailure()) return;
      ASSERT_TRUE((*disk_.Create(path))->Append(bytes).ok());
    }
    // And one that goes on behind its end.
    ASSERT_TRUE((*disk_.Create(path))->Append(bytes + "x").ok());
    ExpectRefused(file);
    ASSERT_TRUE((*disk_.Create(path))->Append(bytes).ok());
  }
}

TEST_F(DamageTest, AMissingPartIsNamedAndAMissingManifestIsNoCheckpoint) {
  ASSERT_TRUE(disk_.Rename(NewFile(kFiles[2]), "/disk/away").ok());
  ExpectRefused(kFiles[2]);
  ASSERT_TRUE(disk_.Rename("/disk/away", NewFile(kFiles[2])).ok());
  ASSERT_TRUE(disk_.Remove(NewFile(kFiles[0])).ok());
  ExpectRefused(kFiles[0]);
  const auto states = OpenFolder(&disk_, "/disk", 2).List();
  ASSERT_TRUE(states.ok());
  EXPECT_TRUE(states->front().manifest);
  EXPECT_FALSE(states->back().manifest);
}

TEST_F(DamageTest, AManifestOfAnotherFolderIsRefused) {
  const std::string other = disk_.Bytes("/disk/job/1000-10/manifest.json");
  ASSERT_TRUE((*disk_.Create(NewFile(kFiles[0])))->Append(other).ok());
  ExpectRefused(kFiles[0]);
}

TEST_F(DamageTest, AFileOfAnotherCheckpointIsRefused) {
  const std::string other =
      disk_.Bytes("/disk/job/1000-10/part-00001-of-00002.npz");
  ASSERT_TRUE((*disk_.Create(NewFile(kFiles[2])))->Append(other).ok());
  ExpectRefused(kFiles[2]);
}

TEST_F(DamageTest, ReadSliceFindsDamageInItsEntryByItself) {
  const std::string path = NewFile(kFiles[1]);
  const CheckpointManifest manifest =
      *ReadCheckpointManifest(&disk_, "/disk/job/1000-20", kNew);
  const PartLayout layout =
      MakePartLayout(*MakeShardPlan(manifest.tensors, 2), 0, 3);
  for (int64_t bit = 0; bit < 8 * layout.offsets.back(); bit += 7) {
    disk_.FlipBit(path, bit);
    CheckpointReader reader =
        *CheckpointReader::Create(&disk_, "/disk/job/1000-20", manifest);
    const absl::Status status = CheckSlices(&reader, 2);
    ASSERT_TRUE(absl::IsDataLoss(status)) << bit << ": " << status;
    EXPECT_TRUE(absl::StrContains(status.message(), path));
    disk_.FlipBit(path, bit);
  }
}

TEST_F(DamageTest, AnotherJobIsAnErrorThatNamesTheField) {
  const CheckpointManifest manifest =
      *ReadCheckpointManifest(&disk_, "/disk/job/1000-20", kNew);
  EXPECT_EQ(CheckRestorable(manifest, SampleJob()), absl::OkStatus());
  Manifest tensors = SmallTensors();
  tensors.tensors[5].shape = {9};
  const auto error = [&](void (*change)(RestoringJob*)) {
    RestoringJob job = SampleJob();
    change(&job);
    const absl::Status status = CheckRestorable(manifest, job);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(error([](RestoringJob* job) { job->job = "other"; }),
            "checkpoint.job is \"job\"; allowed: \"other\", as configured");
  EXPECT_EQ(
      error([](RestoringJob* job) { job->optimizer = "sgd"; }),
      "checkpoint.optimizer is \"adam\"; allowed: \"sgd\", as configured");
  EXPECT_EQ(error([](RestoringJob* job) { job->num_state_arrays = 1; }),
            "checkpoint.state_arrays is 2; allowed: 1, as configured");
  RestoringJob job = SampleJob();
  job.tensors = &tensors;
  EXPECT_THAT(std::string(CheckRestorable(manifest, job).message()),
              HasSubstr("tensor 5"));
}

TEST_F(DamageTest, ALaterFormatIsAnErrorAndNotSkipped) {
  const std::string checked = "{\"format\": 2, \"all\": \"is different\"";
  ASSERT_TRUE((*disk_.Create(NewFile(kFiles[0])))
                  ->Append(absl::StrCat(
                      checked, ", \"crc32c\": ", Crc32c(checked), "}\n"))
                  .ok());
  EXPECT_TRUE(absl::IsUnimplemented(Check(kNew))) << Check(kNew);
}

// A file of 300 MiB that nobody has to write: reading it is an error.
class LargeFile : public ReadableFile {
 public:
  int64_t num_bytes() const override { return int64_t{300} << 20; }
  absl::Status Read(int64_t, absl::Span<char>) override {
    return absl::AbortedError("it is read");
  }
};
class DiskOfLargeFiles : public SimDisk {
 public:
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string&) override {
    return std::make_unique<LargeFile>();
  }
};

TEST(ManifestSizeTest, WhatTheLargestJobHasCanBeRead) {
  // A record in base64, and a line for each tensor.
  EXPECT_GT(kMaxManifestBytes,
            kMaxJobRecordBytes / 3 * 4 + kMaxPhaseTensors * 2048);
  DiskOfLargeFiles disk;
  EXPECT_EQ(ReadCheckpointManifest(&disk, "/disk/job/1000-20", kNew).status(),
            absl::AbortedError("it is read"));
}

// Slices of more than one per tensor, on the system's disk.
TEST(AnotherShardCountTest, HasEqualBits) {
  Manifest tensors = SmallTensors();
  tensors.tensors[3].shape = {2, kMaxSliceElements + 5};
  const std::unique_ptr<FileSystem> files = MakeSystemFiles();
  std::string path = testing::TempDir() + "checkpointXXXXXX";
  ASSERT_NE(mkdtemp(&path[0]), nullptr);
  CheckpointFolder folder = OpenFolder(files.get(), path, 1);
  CheckpointManifest manifest = SampleManifest(kNew, 4, tensors);
  ASSERT_EQ(WriteCheckpoint(&folder, &manifest), absl::OkStatus());
  absl::StatusOr<CheckpointReader> reader =
      CheckpointReader::Create(files.get(), folder.PathOf(kNew), manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (const int num_shards : {1, 3, 4, 7}) {
    EXPECT_EQ(CheckSlices(&*reader, num_shards), absl::OkStatus())
        << num_shards;
  }
}

}  // namespace
}  // namespace agg
