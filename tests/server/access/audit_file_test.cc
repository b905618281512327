#include "server/access/audit_file.h"

#include <sys/stat.h>

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

std::string PathOf(const std::string& name) {
  return absl::StrCat(::testing::TempDir(), "/", name);
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

TEST(AuditFileTest, WhatCannotBeOpenedIsNamed) {
  const auto file = AuditFile::Open({"/nowhere/audit", 10});
  EXPECT_THAT(file.status().message(),
              HasSubstr("security.audit.path is \"/nowhere/audit\": "));
}

}  // namespace
}  // namespace agg
