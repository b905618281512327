#include <string>

#include "gtest/gtest.h"
#include "worker_client/row_encoding.h"

namespace agg {
namespace {

Manifest TwoTensors() {
  Manifest manifest;
  manifest.tensors = {{"a", {1000}, "", false}, {"b", {1000}, "", false}};
  return manifest;
}

TEST(EncodingTallyTest, NamesTheFirstTensorAndWhatToDo) {
  EncodingTally tally;
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kF16), "");
  tally.Set(2, 1, {3, 0});
  tally.Set(0, 0, {0, 0});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kF16),
            "this worker's row had 3 finite values that push_dtype \"f16\" "
            "sends as infinite, so that it cannot count: tensor \"b\"; "
            "allowed: another loss_scale, or push_dtype \"f32\" or \"bf16\"");
  tally.Set(1, 0, {2, 0});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kBF16),
            "this worker's row had 5 finite values that push_dtype \"bf16\" "
            "sends as infinite, so that it cannot count: tensor \"a\"; "
            "allowed: another loss_scale, or push_dtype \"f32\"");
}

TEST(EncodingTallyTest, FewThatVanishAreNothingToSay) {
  EncodingTally tally;
  tally.Set(1, 1, {0, 2});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kI8), "");
  tally.Set(2, 1, {0, 1});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kI8),
            "this worker's row had 3 values that push_dtype \"int8\" sends as "
            "zero: tensor \"b\"; allowed: another loss_scale, or push_dtype "
            "\"f32\"");
}

TEST(EncodingTallyTest, ASliceThatIsRoundedAgainCountsOnce) {
  EncodingTally tally;
  tally.Set(0, 0, {2, 0});
  tally.Set(1, 0, {1, 0});
  tally.Set(0, 0, {2, 0});
  EXPECT_NE(tally.Describe(TwoTensors(), DType::kF16).find("had 3 finite"),
            std::string::npos);
  tally.Set(0, 0, {0, 0});
  tally.Set(1, 0, {0, 0});
  EXPECT_EQ(tally.Describe(TwoTensors(), DType::kF16), "");
}

}  // namespace
}  // namespace agg
