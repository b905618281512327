#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>  // NOLINT

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/audit_trail.h"
#include "tests/server/base/no_large_files.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

// Of a file that is not there: some keep what earlier runs have left.
std::string PathOf(const std::string& name) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
  unlink(path.c_str());
  unlink((path + ".1").c_str());
  return path;
}

size_t CountOf(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(AuditFileTest, LinesAreAppendedAndTheFileIsItsOwnersAlone) {
  const std::string path = PathOf("audit");
  for (const char* line : {"{\"a\":1}", "{\"b\":2}"}) {
    const auto file = AuditFile::Open({path, 1 << 20});
    ASSERT_TRUE(file.ok()) << file.status();
    (*file)->Write(line);
  }
  EXPECT_EQ(Read(path), "{\"a\":1}\n{\"b\":2}\n");
  struct stat about;
  ASSERT_EQ(stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600);
}

TEST(AuditFileTest, AFullFileGivesWayToANewOne) {
  const std::string path = PathOf("full");
  {
    const auto file = AuditFile::Open({path, 10});
    ASSERT_TRUE(file.ok()) << file.status();
    for (const char* line : {"11111", "22222", "33333"}) (*file)->Write(line);
  }
  EXPECT_EQ(Read(path), "33333\n");
  EXPECT_EQ(Read(path + ".1"), "22222\n");
}

TEST(AuditFileTest, ALineThatDoesNotFitLeavesNothingOfItself) {
  const std::string path = PathOf("disk");
  const std::string a(600000, 'a');
  {
    const NoLargeFiles full(1000000);
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    for (const std::string& line : {a, std::string(600000, 'b')}) {
      (*file)->Write(line);
    }
  }
  {
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    (*file)->Write("c");
  }
  EXPECT_TRUE(Read(path) == a + "\nc\n");
}

TEST(AuditFileTest, ADiskThatIsFullAgainIsLoggedAgain) {
  const std::string path = PathOf("again");
  const std::string large(2000000, 'x');
  std::string logged;
  {
    const NoLargeFiles full(1000000, &logged);
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->num_errors(), 0u);
    for (const std::string& line : {large, large, std::string("y"), large}) {
      (*file)->Write(line);
    }
    while ((*file)->num_errors() < 3) std::this_thread::yield();
  }
  EXPECT_EQ(CountOf("the audit file cannot be written", logged), 2);
  EXPECT_TRUE(Read(path) == "y\n");
}

TEST(AuditFileTest, LinesThatFindNoRoomAreLogged) {
  const std::string path = PathOf("slow");
  testing::internal::CaptureStderr();
  {
    const auto file = AuditFile::Open({path, 1 << 30}, /*max_waiting=*/0);
    ASSERT_TRUE(file.ok()) << file.status();
    for (int i = 0; i < 3; ++i) (*file)->Write("x");
    EXPECT_EQ((*file)->num_errors(), 3u);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("the audit file has lost 3 lines: "));
  EXPECT_EQ(Read(path), "");
}

TEST(AuditFileTest, AFileThatOthersCutShortIsNotMadeLongAgain) {
  const std::string path = PathOf("cut");
  std::ofstream(path) << std::string(600000, 'a');
  {
    const NoLargeFiles full(1000000);
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_EQ(truncate(path.c_str(), 0), 0);
    (*file)->Write(std::string(2000000, 'b'));
    (*file)->Write("c");
  }
  EXPECT_TRUE(Read(path) == "c\n");
}

TEST(AuditFileTest, WhatCannotBeOpenedIsNamed) {
  const auto file = AuditFile::Open({"/nowhere/audit", 10});
  EXPECT_THAT(file.status().message(),
              HasSubstr("security.audit.path is \"/nowhere/audit\": "));
}

}  // namespace
}  // namespace agg
