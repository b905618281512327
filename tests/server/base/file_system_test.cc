// What FileSystem promises, for the system's files and for the simulated disk.
#include "server/base/file_system.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
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
#include "server/base/limited_calls.h"
#include "server/base/mutex.h"
#include "tests/server/base/forwarding_files.h"
#include "tests/server/base/sim_disk.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Disk {
  const char* name;
  bool simulated;
  std::unique_ptr<FileSystem> (*make)();
};

class FileSystemTest : public testing::TestWithParam<Disk> {
 protected:
  FileSystemTest() : files_(GetParam().make()) {
    if (GetParam().simulated) {
      EXPECT_TRUE(files_->CreateFolder(root_).ok());
    } else {
      root_ = testing::TempDir() + "file_systemXXXXXX";
      EXPECT_NE(mkdtemp(&root_[0]), nullptr);
    }
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  void Write(const std::string& name, const std::string& bytes) {
    const auto file = files_->Create(Path(name));
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Append(bytes.substr(0, 1)).ok());
    ASSERT_TRUE((*file)->Append(bytes.substr(1)).ok());
    ASSERT_TRUE((*file)->Sync().ok());
    ASSERT_TRUE((*file)->Close().ok());
  }

  std::string Read(const std::string& name) {
    const auto file = files_->Open(Path(name));
    if (!file.ok()) return std::string(file.status().message());
    std::string bytes((*file)->num_bytes(), '\0');
    EXPECT_TRUE((*file)->Read(0, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  const std::unique_ptr<FileSystem> files_;
  std::string root_ = "/disk";
};

TEST_P(FileSystemTest, WritesReadsAndReplacesFiles) {
  Write("a", "first");
  EXPECT_EQ(Read("a"), "first");
  Write("a", "2nd");
  EXPECT_EQ(Read("a"), "2nd");
  Write("b", "other");
  ASSERT_TRUE(files_->Rename(Path("b"), Path("a")).ok());
  EXPECT_EQ(Read("a"), "other");
  EXPECT_TRUE(files_->SyncFolder(root_).ok());
  EXPECT_THAT(*files_->List(root_), ElementsAre("a"));
}

TEST_P(FileSystemTest, ReadsAnyPieceAndNothingBehindTheEnd) {
  Write("a", "0123456789");
  const auto file = files_->Open(Path("a"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->num_bytes(), 10);
  std::string piece(3, '\0');
  ASSERT_TRUE((*file)->Read(7, absl::MakeSpan(piece)).ok());
  EXPECT_EQ(piece, "789");
  EXPECT_TRUE(absl::IsDataLoss((*file)->Read(8, absl::MakeSpan(piece))));
}

TEST_P(FileSystemTest, MakesListsAndRemovesFolders) {
  ASSERT_TRUE(files_->CreateFolder(Path("folder")).ok());
  EXPECT_TRUE(files_->CreateFolder(Path("folder")).ok()) << "there already";
  Write("folder/z", "1");
  Write("folder/a", "2");
  EXPECT_THAT(*files_->List(Path("folder")), ElementsAre("a", "z"));
  EXPECT_FALSE(files_->Remove(Path("folder")).ok()) << "not empty";
  EXPECT_TRUE(files_->Remove(Path("folder/a")).ok());
  EXPECT_TRUE(files_->Remove(Path("folder/z")).ok());
  EXPECT_TRUE(files_->Remove(Path("folder")).ok());
  EXPECT_THAT(*files_->List(root_), ElementsAre());
}

TEST_P(FileSystemTest, WhatIsNotThereIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(files_->Open(Path("a")).status()));
  EXPECT_TRUE(absl::IsNotFound(files_->List(Path("a")).status()));
  EXPECT_TRUE(absl::IsNotFound(files_->Remove(Path("a"))));
  EXPECT_TRUE(absl::IsNotFound(files_->Rename(Path("a"), Path("b"))));
  EXPECT_TRUE(absl::IsNotFound(files_->SyncFolder(Path("a"))));
  EXPECT_TRUE(absl::IsNotFound(files_->Create(Path("a/b")).status()));
  EXPECT_TRUE(absl::IsNotFound(files_->CreateFolder(Path("a/b"))));
  EXPECT_THAT(std::string(files_->Open(Path("a")).status().message()),
              HasSubstr(Path("a")));
}

TEST_P(FileSystemTest, AFileIsNoFolder) {
  Write("a", "12");
  EXPECT_FALSE(files_->CreateFolder(Path("a")).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(files_->Open(root_).status()));
}

INSTANTIATE_TEST_SUITE_P(
    Disks, FileSystemTest,
    testing::Values(Disk{"System", false, &MakeSystemFiles},
                    Disk{"Simulated", true,
                         []() -> std::unique_ptr<FileSystem> {
                           return std::make_unique<SimDisk>();
                         }}),
    [](const testing::TestParamInfo<Disk>& info) { return info.param.name; });

// A lost peer and an epoch that is over have these codes between processes: who
// waits for a person then would try again for ever.
TEST(FileErrorOfTest, NoFileSaysThatAPeerIsLost) {
  for (const int error : {ESTALE, ENOLCK, EHOSTDOWN, EHOSTUNREACH, ENETDOWN,
                          ENETUNREACH, ECONNREFUSED, ECANCELED, EDEADLK}) {
    const absl::Status status = FileErrorOf(error, "open", "/a/b");
    EXPECT_FALSE(absl::IsAborted(status) || absl::IsUnavailable(status) ||
                 absl::IsCancelled(status) || status.ok())
        << status;
    EXPECT_THAT(status.message(), HasSubstr("cannot open /a/b"));
  }
  EXPECT_TRUE(absl::IsNotFound(FileErrorOf(ENOENT, "open", "/a")));
  EXPECT_TRUE(absl::IsResourceExhausted(FileErrorOf(ENOSPC, "write", "/a")));
}

TEST(SystemFilesTest, FollowsNoLinkAndWaitsForNoPipe) {
  const std::unique_ptr<FileSystem> files = MakeSystemFiles();
  std::string folder = testing::TempDir() + "system_filesXXXXXX";
  ASSERT_NE(mkdtemp(&folder[0]), nullptr);
  ASSERT_EQ(symlink("elsewhere", (folder + "/link").c_str()), 0);
  EXPECT_FALSE(files->Create(folder + "/link").ok());
  EXPECT_TRUE(absl::IsNotFound(files->Open(folder + "/elsewhere").status()));
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(files->Open(folder + "/pipe").status()));
}

TEST(SimDiskTest, ForgetsWhatWasNotSynced) {
  using Kept = SimDisk::Kept;
  const auto disk = [](bool sync_name) {
    auto sim = std::make_unique<SimDisk>();
    auto file = *sim->Create("/a");
    EXPECT_TRUE(file->Append("synced").ok());
    EXPECT_TRUE(file->Sync().ok());
    EXPECT_TRUE(file->Append(" and not").ok());
    if (sync_name) {
      EXPECT_TRUE(sim->SyncFolder("/").ok());
    }
    return sim;
  };
  auto sim = disk(true);
  sim->LosePower(Kept::kSynced, Kept::kSynced);
  EXPECT_EQ(sim->Bytes("/a"), "synced");
  sim = disk(false);
  sim->LosePower(Kept::kAll, Kept::kSynced);
  EXPECT_EQ(sim->Bytes("/a"), "synced");
  sim = disk(true);
  sim->LosePower(Kept::kSynced, Kept::kAll);
  EXPECT_EQ(sim->Bytes("/a"), "synced and not");
  sim = disk(false);
  sim->LosePower(Kept::kSynced, Kept::kAll);
  EXPECT_TRUE(absl::IsNotFound(sim->Open("/a").status()));
}

TEST(SimDiskTest, ForgetsNamesInAnyOrder) {
  using Kept = SimDisk::Kept;
  for (const bool some : {true, false}) {
    SimDisk sim;
    EXPECT_TRUE(sim.Create("/old0").ok());
    EXPECT_TRUE(sim.Create("/old1").ok());
    EXPECT_TRUE(sim.SyncFolder("/").ok());
    EXPECT_TRUE(sim.Remove("/old0").ok());
    EXPECT_TRUE(sim.Remove("/old1").ok());
    sim.LosePower(some ? Kept::kSome : Kept::kOthers, Kept::kAll);
    EXPECT_EQ(sim.List("/")->size(), 1u);
    EXPECT_NE(sim.Open("/old0").ok(), sim.Open("/old1").ok());
  }
}

TEST(SimDiskTest, ASecondSyncAfterAFailedOneWritesNothing) {
  SimDisk disk;
  auto file = *disk.Create("/a");
  EXPECT_TRUE(disk.SyncFolder("/").ok());
  EXPECT_TRUE(file->Append("lost").ok());
  disk.FailAt(disk.num_operations(), SimDisk::Fault::kFail,
              absl::DataLossError("EIO"));
  EXPECT_FALSE(file->Sync().ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_EQ(disk.Bytes("/a"), "lost");
  disk.LosePower(SimDisk::Kept::kAll, SimDisk::Kept::kSynced);
  EXPECT_EQ(disk.Bytes("/a"), "");
}

TEST(SimDiskTest, DiesInTheMiddleOfAWrite) {
  SimDisk disk;
  auto file = *disk.Create("/a");
  disk.FailAt(disk.num_operations(), SimDisk::Fault::kDie,
              absl::CancelledError("dead"));
  EXPECT_FALSE(file->Append("1234").ok());
  EXPECT_FALSE(file->Append("5678").ok());
  EXPECT_FALSE(disk.Remove("/a").ok());
  disk.Recover();
  EXPECT_EQ(disk.Bytes("/a"), "12");
  EXPECT_TRUE(disk.Remove("/a").ok());
}

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
