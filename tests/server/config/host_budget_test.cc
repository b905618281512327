#include "server/config/host_budget.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace agg {
namespace {

// A root of /proc and /sys of the test's own.
class RootTest : public testing::Test {
 protected:
  RootTest()
      : root_(testing::TempDir() + "/budget_test_" +
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

using CpuTest = RootTest;
using MemoryTest = RootTest;

TEST_F(CpuTest, WithoutAQuotaTheAffinityCounts) {
  EXPECT_EQ(GrantedCpus(6, root_), 6);
  EXPECT_EQ(GrantedCpus(0, root_), 1);
  Write("proc/self/cgroup", "0::/a\n");
  Write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(GrantedCpus(6, root_), 6);
  EXPECT_GE(AffinityCpus(), 1);
}

TEST_F(CpuTest, AQuotaIsRoundedUp) {
  Write("proc/self/cgroup", "0::/a\n");
  for (const auto& [text, cpus] :
       {std::pair("200000 100000\n", 2), std::pair("150000 100000\n", 2),
        std::pair("1000 100000\n", 1), std::pair("50000 25000", 2),
        std::pair("6400000 100000\n", 64), std::pair("junk\n", 64),
        std::pair("", 64), std::pair("100000\n", 64),
        std::pair("100000 0\n", 64), std::pair("-1 100000\n", 64)}) {
    Write("sys/fs/cgroup/a/cpu.max", text);
    EXPECT_EQ(GrantedCpus(64, root_), cpus) << text;
  }
  Write("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  EXPECT_EQ(GrantedCpus(3, root_), 3);
}

// Kubernetes: the limit is of the container, or of the pod above it.
TEST_F(CpuTest, TheSmallestQuotaOfTheParentsCounts) {
  Write("proc/self/cgroup", "0::/pod/container\n");
  Write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/pod/cpu.max", "300000 100000\n");
  EXPECT_EQ(GrantedCpus(32, root_), 3);
  Write("sys/fs/cgroup/pod/container/cpu.max", "100000 100000\n");
  EXPECT_EQ(GrantedCpus(32, root_), 1);
}

// A container's own group is the root that it sees.
TEST_F(CpuTest, InANamespaceOfItsOwn) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(GrantedCpus(32, root_), 2);
}

TEST_F(CpuTest, VersionOne) {
  Write("proc/self/cgroup",
        "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n");
  Write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(GrantedCpus(32, root_), 32);
  Write("sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(GrantedCpus(32, root_), 3);
}

// Docker: /proc names the host's path, and only the root of it is there.
TEST_F(CpuTest, VersionOneWhosePathIsTheHosts) {
  Write("proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "100000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(GrantedCpus(32, root_), 2);
}

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

// Of version 2, of a pod above a container, of version 1, and without any.
TEST_F(MemoryTest, TheLimitAloneIsZeroWithoutOne) {
  Write("proc/meminfo", "MemTotal: 1000 kB\n");
  EXPECT_EQ(MemoryLimit(root_), 0);
  Write("proc/self/cgroup", "2:memory:/a\n0::/pod/container\n");
  EXPECT_EQ(MemoryLimit(root_), 0);
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes",
        "9223372036854771712\n");
  Write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  EXPECT_EQ(MemoryLimit(root_), 0);
  Write("sys/fs/cgroup/pod/container/memory.max", "900000\n");
  EXPECT_EQ(MemoryLimit(root_), 900000);
  Write("sys/fs/cgroup/pod/memory.max", "700000\n");
  EXPECT_EQ(MemoryLimit(root_), 700000);
  Write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "300000\n");
  EXPECT_EQ(MemoryLimit(root_), 300000);
}

TEST(BudgetTest, IsFourFifths) { EXPECT_EQ(DefaultBudget(1000), 800); }

}  // namespace
}  // namespace agg
