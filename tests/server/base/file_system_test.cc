// What FileSystem promises, for the system's files and for the simulated disk.
#include "server/base/file_system.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
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

}  // namespace
}  // namespace agg
