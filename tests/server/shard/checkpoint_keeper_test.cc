// How a shard looks at folders that take their time.
#include "server/shard/checkpoint_keeper.h"

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "server/base/file_system.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "tests/server/base/sim_disk.h"

namespace agg {
namespace {

// A disk whose listings of a job's folder wait until all that are awaited have
// begun.
class MeetingFiles : public FileSystem {
 public:
  MeetingFiles() { EXPECT_TRUE(disk_.CreateFolder("/disk").ok()); }

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
    return disk_.List(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(
      const std::string& path) override {
    return disk_.Create(path);
  }
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(
      const std::string& path) override {
    return disk_.Open(path);
  }
  absl::Status CreateFolder(const std::string& path) override {
    return disk_.CreateFolder(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return disk_.Rename(from, to);
  }
  absl::Status SyncFolder(const std::string& path) override {
    return disk_.SyncFolder(path);
  }
  absl::Status Remove(const std::string& path) override {
    return disk_.Remove(path);
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
