#include "kernels/cuda/numa_node.h"

#include <sys/mman.h>

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/fake_sysfs.h"
#include "tests/kernels/cuda/memory_policy.h"

namespace agg::cuda {
namespace {

using testing::HasSubstr;

constexpr char kId[] = "0000:1a:00.0";

int NumberOf(const std::string& nodes, const std::string& numa_node) {
  const std::string sysfs = MakeSysfs("numa_node", nodes, kId, numa_node);
  return NumaNode::OfDevice("0000:1A:00.0", sysfs)->number();
}

TEST(NumaNodeTest, IsTheDevicesOneWhereThereAreSeveral) {
  EXPECT_EQ(NumberOf("0-1", "1"), 1);
  EXPECT_EQ(NumberOf("0-1", "0"), 0);
  EXPECT_EQ(NumberOf("0,4", "4"), 4);
}

TEST(NumaNodeTest, IsNoneWhereThereIsNoChoiceOrNoAnswer) {
  EXPECT_LT(NumberOf("0", "0"), 0);
  EXPECT_LT(NumberOf("0-1", "-1"), 0);
  EXPECT_LT(NumberOf("0-1", ""), 0);
  EXPECT_LT(NumberOf("", "1"), 0);
  EXPECT_LT(NumberOf("0-1", "first"), 0);
  EXPECT_LT(NumberOf("0-1", "1024"), 0);
  EXPECT_LT(NumberOf("0-1", "99999999999"), 0);
  EXPECT_LT(NumaNode().number(), 0);
}

class PreferTest : public testing::Test {
 protected:
  PreferTest()
      : memory_(
            static_cast<char*>(mmap(nullptr, kNumBytes, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~PreferTest() override { munmap(memory_, kNumBytes); }

  static constexpr int64_t kNumBytes = 3 * 4096;
  char* const memory_;
};

TEST_F(PreferTest, AsksTheSystemForTheNodesMemory) {
  if (!MayPlaceMemory()) {
    GTEST_SKIP() << "mbind is not allowed here";
  }
  NumaNode().Prefer(memory_, kNumBytes);
  EXPECT_EQ(MemoryPolicy(memory_), MPOL_DEFAULT);
  testing::internal::CaptureStderr();
  NumaNode(0).Prefer(memory_, 2 * 4096);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(MemoryPolicy(memory_), MPOL_PREFERRED);
  EXPECT_EQ(MemoryPolicy(memory_ + 4096), MPOL_PREFERRED);
  EXPECT_EQ(MemoryPolicy(memory_ + 2 * 4096), MPOL_DEFAULT);
  memory_[0] = 1;  // usable
}

// No machine has that many nodes.
TEST_F(PreferTest, ComplainsOnceOfANodeThatIsRefused) {
  const NumaNode node(1023);
  testing::internal::CaptureStderr();
  node.Prefer(memory_, kNumBytes);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("NUMA node 1023"));
  testing::internal::CaptureStderr();
  node.Prefer(memory_, kNumBytes);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  memory_[0] = 1;
}

}  // namespace
}  // namespace agg::cuda
