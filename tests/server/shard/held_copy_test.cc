#include <memory>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/shard_epoch.h"

namespace agg {
namespace {

using testing::HasSubstr;

RecordText Record(const std::string& text) {
  return std::make_shared<const std::string>(text);
}

TEST(HeldCopyTest, StepsToWhatItWasPreparedFor) {
  HeldCopy copy(2);
  EXPECT_FALSE(copy.held());
  EXPECT_EQ(copy.Describe(), "part 2 is void");
  copy.Hold({7, 5}, Record("of 5"));
  EXPECT_TRUE(copy.At({7, 5}));
  EXPECT_EQ(copy.Describe(), "part 2 is at version 5 (made by epoch 7)");
  copy.BeginPrepare(8);
  EXPECT_TRUE(copy.prepared());
  EXPECT_FALSE(copy.whole());
  EXPECT_TRUE(absl::IsFailedPrecondition(copy.CheckStep({8, 6})));
  copy.EndPrepare(Record("of 6"));
  EXPECT_EQ(*copy.record(), "of 5");
  EXPECT_EQ(copy.CheckStep({8, 6}), absl::OkStatus());
  EXPECT_THAT(copy.CheckStep({7, 6}).message(),
              HasSubstr("a step to version 6 (made by epoch 7) is not possible:"
                        " part 2 is at version 5 (made by epoch 7), prepared "
                        "by epoch 8"));
  EXPECT_FALSE(copy.CheckStep({8, 7}).ok());
  copy.Step();
  EXPECT_TRUE(copy.At({8, 6}));
  EXPECT_FALSE(copy.prepared());
  EXPECT_EQ(*copy.record(), "of 6");
  EXPECT_FALSE(copy.CheckStep({8, 7}).ok());
}

TEST(HeldCopyTest, DropsWhatWasPrepared) {
  HeldCopy copy(0);
  copy.Hold({7, 5}, Record("of 5"));
  copy.BeginPrepare(8);
  copy.EndPrepare(Record("of 6"));
  copy.Drop();
  EXPECT_TRUE(copy.At({7, 5}));
  EXPECT_FALSE(copy.prepared());
  EXPECT_EQ(*copy.record(), "of 5");
  copy.BeginPrepare(9);
  copy.EndPrepare(nullptr);
  copy.Step();
  EXPECT_EQ(copy.record(), nullptr);
}

TEST(HeldCopyTest, AVoidOneRemembersWhereItWas) {
  HeldCopy copy(0);
  copy.Hold({7, 5}, Record("of 5"));
  copy.BeginPrepare(8);
  copy.Void();
  EXPECT_FALSE(copy.At({7, 5}));
  EXPECT_EQ(copy.id().version, 5u);
  EXPECT_EQ(copy.record(), nullptr);
  EXPECT_FALSE(copy.prepared());
  copy.Hold({9, 3}, nullptr);
  EXPECT_TRUE(copy.At({9, 3}));
}

}  // namespace
}  // namespace agg
