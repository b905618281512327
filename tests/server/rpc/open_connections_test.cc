#include "server/rpc/open_connections.h"

#include <sys/resource.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

// Descriptors are numbers here, and each open one has an inode of its own.
class OpenConnectionsTest : public ::testing::Test {
 protected:
  bool Add(OpenConnections* open, int fd, const std::string& host) {
    inodes_[fd] = ++last_inode_;
    const bool added = open->Add(fd, host);
    if (!added) inodes_.erase(fd);
    return added;
  }
  OpenConnections Make(int most) {
    return {most, &clock_, [this](int fd) {
              const auto found = inodes_.find(fd);
              return found == inodes_.end() ? 0 : found->second;
            }};
  }

  FakeClock clock_;
  uint64_t last_inode_ = 0;
  std::map<int, uint64_t> inodes_;
};

TEST_F(OpenConnectionsTest, NoMoreThanThereArePlaces) {
  OpenConnections open = Make(8);
  for (int fd = 0; fd < 8; ++fd) {
    EXPECT_TRUE(Add(&open, fd, absl::StrCat("host ", fd)));
  }
  EXPECT_FALSE(Add(&open, 8, "another"));
  EXPECT_EQ(open.size(), 8);
}

TEST_F(OpenConnectionsTest, PlacesOfClosedOnesAreGivenAgain) {
  OpenConnections open = Make(4);
  for (int fd = 0; fd < 4; ++fd) ASSERT_TRUE(Add(&open, fd, "a"));
  ASSERT_FALSE(Add(&open, 9, "a"));
  inodes_.erase(1);
  inodes_[2] = 1000;  // closed, and a file of something else has the number
  EXPECT_FALSE(Add(&open, 9, "a"));  // it has just looked
  clock_.Advance(OpenConnections::kLook);
  EXPECT_TRUE(Add(&open, 9, "a"));
  EXPECT_EQ(open.size(), 3);
  EXPECT_TRUE(Add(&open, 1, "a"));
}

TEST_F(OpenConnectionsTest, ADescriptorThatIsGivenAgainCountsOnce) {
  OpenConnections open = Make(2);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Add(&open, 3, "a"));
  EXPECT_EQ(open.size(), 1);
}

TEST_F(OpenConnectionsTest, TheLastPlacesAreForHostsWithFew) {
  OpenConnections open = Make(256);
  int fd = 0;
  while (fd < 224) ASSERT_TRUE(Add(&open, fd++, "many"));
  EXPECT_FALSE(Add(&open, fd, "many"));
  for (int i = 0; i < OpenConnections::kFew; ++i) {
    ASSERT_TRUE(Add(&open, fd++, "few"));
  }
  EXPECT_FALSE(Add(&open, fd, "few"));
  EXPECT_TRUE(Add(&open, fd, "another"));
}

TEST(SystemInodeTest, DiffersForOpenDescriptorsAndIsNoneForClosedOnes) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const uint64_t inode = OpenConnections::SystemInode(ends[0]);
  EXPECT_NE(inode, 0);
  EXPECT_NE(inode, OpenConnections::SystemInode(0));
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(OpenConnections::SystemInode(ends[0]), 0);
}

TEST(PlacesForConnectionsTest, StayBelowTheLimitOfFiles) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GE(before.rlim_max, 1000);
  EXPECT_EQ(PlacesForConnections(10), 10);
  rlimit few = before;
  few.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(PlacesForConnections(400), 400);  // the soft limit was raised
  rlimit raised = {};
  getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_GE(raised.rlim_cur, 912);
  few.rlim_cur = 600;
  few.rlim_max = 600;  // from here on for good
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(PlacesForConnections(4096), 300);
}

}  // namespace
}  // namespace agg
