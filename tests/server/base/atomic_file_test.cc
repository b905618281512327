#include "server/base/atomic_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_client/npz/npy_files.h"

namespace agg {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() {
    std::filesystem::create_directory(folder_);
    name_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    path_ = folder_ + "/" + name_;
  }

  // Writes to where an AtomicFile has its part.
  void WritePart(const std::string& bytes) {
    WriteTestFile("atomic/" + name_ + ".part", bytes);
  }
  void Write(const std::string& bytes) {
    WriteTestFile("atomic/" + name_, bytes);
  }
  bool PartExists() const {
    return std::filesystem::exists(
        std::filesystem::symlink_status(path_ + ".part"));
  }

  const std::string folder_ = ::testing::TempDir() + "/atomic";
  std::string name_;
  std::string path_;
};

TEST_F(AtomicFileTest, ReplacesTheOldFileAtTheEnd) {
  Write("old");
  AtomicFile file(path_);
  ASSERT_TRUE(file.Open().ok());
  EXPECT_EQ(file.part_path(), path_ + ".part");
  WritePart("new");
  EXPECT_EQ(ReadTestFile(path_), "old");
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_EQ(ReadTestFile(path_), "new");
  EXPECT_FALSE(PartExists());
}

TEST_F(AtomicFileTest, LeavesTheOldFileWithoutACommit) {
  Write("old");
  {
    AtomicFile file(path_);
    ASSERT_TRUE(file.Open().ok());
    WritePart("new");
  }
  EXPECT_EQ(ReadTestFile(path_), "old");
  EXPECT_FALSE(PartExists());
}

TEST_F(AtomicFileTest, BeginsAnewWhereAnotherWasBrokenOff) {
  WritePart("a half");
  AtomicFile file(path_);
  ASSERT_TRUE(file.Open().ok());
  EXPECT_THAT(ReadTestFile(file.part_path()), IsEmpty());
}

TEST_F(AtomicFileTest, ReplacesWhatALinkLeadsToAndKeepsTheLink) {
  WriteTestFile("atomic/other", "other");
  std::filesystem::create_symlink("other", folder_ + "/middle");
  std::filesystem::create_symlink(folder_ + "/middle", path_);
  AtomicFile file(path_);
  ASSERT_TRUE(file.Open().ok());
  EXPECT_EQ(file.part_path(),
            std::filesystem::canonical(folder_).string() + "/other.part");
  WriteTestFile("atomic/other.part", "new");
  EXPECT_EQ(ReadTestFile(path_), "other");
  ASSERT_TRUE(file.Commit().ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(ReadTestFile(folder_ + "/other"), "new");
}

TEST_F(AtomicFileTest, RefusesALinkThatLeadsNowhereOrToAPipe) {
  std::filesystem::create_symlink(folder_ + "/nowhere", path_);
  const absl::Status nowhere = AtomicFile(path_).Open();
  EXPECT_EQ(nowhere.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(nowhere.message()), HasSubstr("leads nowhere"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/nowhere"));
  std::filesystem::remove(path_);
  ASSERT_EQ(mkfifo((path_ + "_pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink(path_ + "_pipe", path_);
  EXPECT_THAT(std::string(AtomicFile(path_).Open().message()),
              HasSubstr("not a regular file"));
}

TEST_F(AtomicFileTest, DoesNotWriteThroughALinkInThePartsPlace) {
  WriteTestFile("atomic/victim", "victim");
  std::filesystem::create_symlink(folder_ + "/victim", path_ + ".part");
  {
    AtomicFile file(path_);
    EXPECT_EQ(file.Open().code(), absl::StatusCode::kUnknown);
  }
  EXPECT_EQ(ReadTestFile(folder_ + "/victim"), "victim");
  EXPECT_TRUE(PartExists());  // It is not this one's to remove.
}

TEST_F(AtomicFileTest, RefusesWhatIsNotAFile) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  for (const std::string& path : {path_, folder_}) {
    AtomicFile file(path);
    const absl::Status status = file.Open();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
    EXPECT_THAT(std::string(status.message()), HasSubstr("not a regular file"));
    EXPECT_FALSE(std::filesystem::exists(file.part_path()));
  }
}

TEST_F(AtomicFileTest, WriteFileReplacesTheFile) {
  Write("a longer old text");
  const std::string bytes("new\0", 4);
  ASSERT_TRUE(WriteFile(path_, bytes).ok());
  EXPECT_EQ(ReadTestFile(path_), bytes);
  EXPECT_FALSE(PartExists());
}

TEST_F(AtomicFileTest, WriteFileRefusesAPipeAndALinkToOne) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  const std::string link = path_ + "_link";
  std::filesystem::create_symlink(path_, link);
  for (const std::string& path : {path_, link}) {
    const absl::Status status = WriteFile(path, "new");
    EXPECT_EQ(OutputError("--x", path, status).message(),
              "--x is \"" + path +
                  "\" (not a regular file); allowed: a new path, a file to be "
                  "replaced, or a link to one, in a folder that exists and has "
                  "room");
  }
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
}

TEST_F(AtomicFileTest, OutputPathIsWhereALinkLeads) {
  EXPECT_EQ(OutputPath(path_).value(), path_);  // new
  Write("old");
  EXPECT_EQ(OutputPath(path_).value(), path_);
  std::filesystem::create_symlink(name_, path_ + "_link");
  EXPECT_EQ(OutputPath(path_ + "_link").value(),
            std::filesystem::canonical(path_).string());
}

TEST_F(AtomicFileTest, SaysWhyItCannotBe) {
  AtomicFile file(folder_ + "/no/such");
  EXPECT_EQ(file.Open().message(), "No such file or directory");
}

}  // namespace
}  // namespace agg
