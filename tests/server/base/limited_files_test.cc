#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/file_system.h"
#include "server/base/limited_calls.h"
#include "server/base/mutex.h"
#include "tests/server/base/forwarding_files.h"
#include "tests/server/base/sim_disk.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a test and the stuck threads share, which outlive the file system.
struct Gate {
  void Wait(const std::string& what) {
    MutexLock lock(&mutex);
    while (!hanging.empty() && absl::StrContains(what, hanging)) {
      ++num_waits;
      changed.NotifyAll();
      changed.Wait(&mutex);
    }
  }
  void Hang(const std::string& what) {
    MutexLock lock(&mutex);
    hanging = what;
    changed.NotifyAll();
  }
  Mutex mutex;
  CondVar changed;
  std::string hanging;  // calls whose text contains it; "": none
  int num_waits = 0;
};

class HangingFile : public ReadableFile {
 public:
  HangingFile(std::shared_ptr<Gate> gate, std::unique_ptr<ReadableFile> file)
      : gate_(std::move(gate)), file_(std::move(file)) {}
  int64_t num_bytes() const override { return file_->num_bytes(); }
  absl::Status Read(int64_t offset, absl::Span<char> bytes) override {
    gate_->Wait("read");
    return file_->Read(offset, bytes);
  }

 private:
  const std::shared_ptr<Gate> gate_;
  const std::unique_ptr<ReadableFile> file_;
};

class HangingFiles : public ForwardingFiles {
 public:
  explicit HangingFiles(std::shared_ptr<Gate> gate)
      : ForwardingFiles(&disk_), gate_(std::move(gate)) {}
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    gate_->Wait("open " + path);
    absl::StatusOr<std::unique_ptr<ReadableFile>> file =
        ForwardingFiles::Open(path);
    if (!file.ok()) return file;
    return std::make_unique<HangingFile>(gate_, *std::move(file));
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    gate_->Wait("list " + path);
    return ForwardingFiles::List(path);
  }

 private:
  const std::shared_ptr<Gate> gate_;
  SimDisk disk_;
};

class LimitedFilesTest : public testing::Test {
 protected:
  LimitedFilesTest() {
    FileLimits limits;
    limits.look = absl::Milliseconds(20);
    limits.read = absl::Milliseconds(20);
    files_ = LimitFiles(std::make_unique<HangingFiles>(gate_), limits);
    EXPECT_EQ(files_->CreateFolder("/f"), absl::OkStatus());
  }
  ~LimitedFilesTest() override { gate_->Hang(""); }

  void Write(const std::string& path, const std::string& bytes) {
    auto file = *files_->Create(path);
    ASSERT_EQ(file->Append(bytes), absl::OkStatus());
    ASSERT_EQ(file->Sync(), absl::OkStatus());
    ASSERT_EQ(file->Close(), absl::OkStatus());
  }

  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::unique_ptr<FileSystem> files_;
};

TEST_F(LimitedFilesTest, DoesWhatTheOtherDoes) {
  // More than a piece, so that some is kept back and some is not.
  std::string bytes;
  for (int i = 0; bytes.size() < (size_t{3} << 20); ++i) {
    bytes += std::to_string(i);
  }
  Write("/f/a", bytes);
  EXPECT_THAT(*files_->List("/f"), ElementsAre("a"));
  const auto file = *files_->Open("/f/a");
  ASSERT_EQ(file->num_bytes(), static_cast<int64_t>(bytes.size()));
  for (const std::pair<size_t, size_t>& piece :
       std::vector<std::pair<size_t, size_t>>{{0, 30},
                                              {30, 100},
                                              {5, 40},
                                              {1000, size_t{2} << 20},
                                              {bytes.size() - 7, 7},
                                              {0, bytes.size()}}) {
    std::string read(piece.second, '\0');
    ASSERT_EQ(
        file->Read(static_cast<int64_t>(piece.first), absl::MakeSpan(read)),
        absl::OkStatus());
    EXPECT_TRUE(read == bytes.substr(piece.first, piece.second));
  }
  std::string beyond(8, '\0');
  EXPECT_TRUE(absl::IsDataLoss(file->Read(
      static_cast<int64_t>(bytes.size()) - 7, absl::MakeSpan(beyond))));
  EXPECT_TRUE(absl::IsNotFound(files_->Open("/f/none").status()));
  EXPECT_EQ(files_->Remove("/f/a"), absl::OkStatus());
}

TEST_F(LimitedFilesTest, AListThatHangsEndsByNameAndTheNextOnesAtOnce) {
  gate_->Hang("list /f");
  const absl::Status first = files_->List("/f").status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(first));
  EXPECT_THAT(std::string(first.message()),
              HasSubstr("cannot list /f: no answer within 20ms"));
  // No second thread is stuck.
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(std::string(files_->Open("/f/a").status().message()),
                HasSubstr("list /f has not returned since"));
  }
  MutexLock lock(&gate_->mutex);
  EXPECT_EQ(gate_->num_waits, 1);
}

TEST_F(LimitedFilesTest, GoesOnWhenTheFolderIsBack) {
  gate_->Hang("list /f");
  EXPECT_FALSE(files_->List("/f").ok());
  gate_->Hang("");
  // The stuck one has to return first.
  while (!files_->List("/f").ok()) {
  }
  EXPECT_THAT(*files_->List("/f"), ElementsAre());
}

// The reader's memory is its own again, whenever the read returns.
TEST_F(LimitedFilesTest, AReadThatHangsWritesNothingLater) {
  Write("/f/a", std::string(100, 'x'));
  auto file = *files_->Open("/f/a");
  gate_->Hang("read");
  std::string bytes(10, '.');
  EXPECT_THAT(std::string(file->Read(0, absl::MakeSpan(bytes)).message()),
              HasSubstr("cannot read /f/a: no answer within 20ms"));
  file = nullptr;
  files_ = nullptr;  // neither is waited for
  gate_->Hang("");
  EXPECT_EQ(bytes, std::string(10, '.'));
}

// Others of another kind go on.
TEST_F(LimitedFilesTest, WhatIsWrittenDoesNotWaitForALook) {
  gate_->Hang("list /f");
  EXPECT_FALSE(files_->List("/f").ok());
  Write("/f/b", "bytes");
}

}  // namespace
}  // namespace agg
