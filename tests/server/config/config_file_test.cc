#include "server/config/config_text.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string PathOf(const std::string& name) {
  return ::testing::TempDir() + "/" + name;
}

std::string Written(const std::string& name, const std::string& text) {
  std::ofstream(PathOf(name)) << text;
  return PathOf(name);
}

void ExpectRefused(const std::string& path, const std::string& reason) {
  const absl::Status status = ReadConfigFile(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--config is \"" + path + "\" (" + reason),
                    HasSubstr("; allowed: a file")));
}

TEST(ConfigFileTest, ReadsAllOfIt) {
  const std::string text(100000, ' ');
  const auto read = ReadConfigFile(Written("long", text + "workers: 1\n"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, text + "workers: 1\n");
}

TEST(ConfigFileTest, SaysWhatIsWrongWithTheFile) {
  ExpectRefused(::testing::TempDir(), "a folder");
  ExpectRefused(PathOf("missing"), "No such file or directory");
  ExpectRefused(Written("empty", ""), "empty");
  ExpectRefused(Written("blank", " \n\t\n"), "empty");
  ExpectRefused("/dev/zero", "more than 16777216 bytes");
  const std::string loop = PathOf("loop");
  unlink(loop.c_str());
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  ExpectRefused(loop, "Too many levels of symbolic links");
  // Can be opened, but not read at its start.
  ExpectRefused("/proc/self/mem", "Input/output error");
}

}  // namespace
}  // namespace agg
