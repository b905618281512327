#include "server/config/host_budget.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace agg {
namespace {

class MemoryTest : public testing::Test {
 protected:
  MemoryTest()
      : root_(testing::TempDir() + "/memory_test_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() +
              "/") {}

  void Write(const std::string& path, const std::string& text) {
    const std::string full = root_ + path;
    const std::string folder = full.substr(0, full.rfind('/'));
    ASSERT_EQ(system(("mkdir -p '" + folder + "'").c_str()), 0);
    std::ofstream(full) << text;
  }

  const std::string root_;
};

TEST_F(MemoryTest, WithoutALimit) {
  EXPECT_EQ(GrantedMemory(root_).bytes, 0);
  Write("proc/meminfo", "MemTotal:        1000 kB\nMemFree: 5 kB\n");
  Write("proc/self/cgroup", "0::/a\n");
  Write("sys/fs/cgroup/a/memory.max", "max\n");
  const HostMemory memory = GrantedMemory(root_);
  EXPECT_EQ(memory.bytes, 1024000);
  EXPECT_EQ(memory.source, "MemTotal");
}

TEST_F(MemoryTest, TheSmallestLimitOfTheParentsCounts) {
  Write("proc/meminfo", "MemTotal: 1000 kB\n");
  Write("proc/self/cgroup", "0::/pod/container\n");
  Write("sys/fs/cgroup/pod/container/memory.max", "900000\n");
  Write("sys/fs/cgroup/pod/memory.max", "500000\n");
  const HostMemory memory = GrantedMemory(root_);
  EXPECT_EQ(memory.bytes, 500000);
  EXPECT_EQ(memory.source, "cgroup limit");
}

TEST_F(MemoryTest, VersionOneAndTheRootGroup) {
  Write("proc/meminfo", "MemTotal: 1000 kB\n");
  Write("proc/self/cgroup", "3:cpu:/x\n2:memory:/\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n");
  EXPECT_EQ(GrantedMemory(root_).bytes, 300000);
}

TEST_F(MemoryTest, AHugeLimitIsNone) {
  Write("proc/meminfo", "MemTotal: 1000 kB\n");
  Write("proc/self/cgroup", "2:memory:/\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(GrantedMemory(root_).source, "MemTotal");
}

TEST(BudgetTest, IsFourFifths) { EXPECT_EQ(DefaultBudget(1000), 800); }

}  // namespace
}  // namespace agg
