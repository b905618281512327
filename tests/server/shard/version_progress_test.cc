// What may be read of a version that is being written, and who hears of it.
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "server/shard/published_version.h"

namespace agg {
namespace {

class VersionProgressTest : public testing::Test {
 protected:
  VersionProgress progress_;
  std::vector<absl::Status> heard_;

  void Listen() {
    progress_.Listen(
        [this](const absl::Status& status) { heard_.push_back(status); });
  }
};

TEST_F(VersionProgressTest, TheEndComesWithThePublicationAlone) {
  Listen();
  EXPECT_FALSE(progress_.Allows(1, false));
  progress_.Advance(2);
  EXPECT_TRUE(progress_.Allows(2, false));
  EXPECT_FALSE(progress_.Allows(3, false));
  progress_.Advance(3);
  EXPECT_TRUE(progress_.Allows(3, false));
  EXPECT_FALSE(progress_.Allows(3, true));
  progress_.Publish();
  EXPECT_TRUE(progress_.Allows(3, true));
  EXPECT_EQ(heard_.size(), 4u);  // at once, and three changes
  for (const absl::Status& status : heard_) EXPECT_TRUE(status.ok());
}

TEST_F(VersionProgressTest, AfterAFailureNothingMayBeRead) {
  progress_.Advance(3);
  Listen();
  progress_.Fail(absl::AbortedError("over"));
  EXPECT_FALSE(progress_.Allows(1, false));
  EXPECT_EQ(heard_.back(), absl::AbortedError("over"));
  Listen();  // too late: it hears so at once
  EXPECT_EQ(heard_.back(), absl::AbortedError("over"));
}

TEST_F(VersionProgressTest, WhatIsPublishedDoesNotFail) {
  progress_.Advance(1);
  progress_.Publish();
  progress_.Fail(absl::AbortedError("over"));
  EXPECT_TRUE(progress_.Allows(1, true));
}

}  // namespace
}  // namespace agg
