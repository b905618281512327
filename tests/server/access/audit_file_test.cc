#include "server/access/audit_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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

// A limit of a file's size ends a write in its middle, as a full disk does.
TEST(AuditFileTest, ALineThatDoesNotFitLeavesNothingOfItself) {
  const std::string path = PathOf("disk");
  const std::string a(600000, 'a');
  std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit full = before;
  full.rlim_cur = 1000000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  {
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    for (const std::string& line : {a, std::string(600000, 'b')}) {
      (*file)->Write(line);
    }
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  {
    const auto file = AuditFile::Open({path, 1 << 30});
    ASSERT_TRUE(file.ok()) << file.status();
    (*file)->Write("c");
  }
  EXPECT_TRUE(Read(path) == a + "\nc\n");
}

TEST(AuditFileTest, WhatCannotBeOpenedIsNamed) {
  const auto file = AuditFile::Open({"/nowhere/audit", 10});
  EXPECT_THAT(file.status().message(),
              HasSubstr("security.audit.path is \"/nowhere/audit\": "));
}

}  // namespace
}  // namespace agg
