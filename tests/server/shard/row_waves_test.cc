// How far rows are, wave by wave, and which attempts are pinned.
#include <cstdint>
#include <set>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/shard/open_round.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

class RowWavesTest : public testing::Test {
 protected:
  // The shard has slices 0 and 1 of the first wave, none of the second one.
  RowWaves waves_{{{0, 2}, {2, 2}, {2, 3}}};
  std::set<int32_t> landed_;

  int News(bool again = false, uint32_t attempt = 0) {
    return waves_.News(4, {7, 3, attempt}, again, [this](int32_t slice) {
      return landed_.count(slice) != 0;
    });
  }
};

TEST_F(RowWavesTest, SaysWhatIsNew) {
  landed_ = {0};
  EXPECT_EQ(News(), 0);
  landed_ = {0, 1};
  EXPECT_EQ(News(), 2);  // of the second one nothing is missing here
  EXPECT_EQ(News(), 0);
  EXPECT_EQ(News(/*again=*/true), 2);
  landed_ = {0, 1, 2};
  EXPECT_EQ(News(), 3);
}

TEST_F(RowWavesTest, ALaterWaveWaitsForTheFirst) {
  landed_ = {1, 2};
  EXPECT_EQ(News(), 0);
  landed_ = {0, 1, 2};
  EXPECT_EQ(News(), 3);
}

TEST_F(RowWavesTest, AnotherAttemptBeginsAnew) {
  landed_ = {0, 1};
  EXPECT_EQ(News(), 2);
  landed_ = {0};
  EXPECT_EQ(News(false, 1), 0);
  landed_ = {0, 1};
  EXPECT_EQ(News(false, 1), 2);
}

TEST_F(RowWavesTest, PinnedRowsTakeNoOtherAttempt) {
  waves_.Pin({{4, 7, 1}});
  EXPECT_TRUE(waves_.CheckAttempt(4, {7, 3, 1}).ok());
  const absl::Status status = waves_.CheckAttempt(4, {7, 3, 2});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("attempt 2 of round 3"));
  // Other ranks, and a later session of this one, are no concern of it.
  EXPECT_TRUE(waves_.CheckAttempt(5, {7, 3, 2}).ok());
  EXPECT_TRUE(waves_.CheckAttempt(4, {8, 3, 2}).ok());
  waves_.Unpin();
  EXPECT_TRUE(waves_.CheckAttempt(4, {7, 3, 2}).ok());
}

}  // namespace
}  // namespace agg
