// Which rows each wave has, and for whom it waits: tables of events.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/awaited_commits.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

constexpr uint64_t kRound = 7;

class OpenWavesTest : public testing::Test {
 protected:
  // Session 10 + rank, attempt 2, one wave each.
  OpenWaves waves_{kRound, 3, {{0, 10, 2, 1}, {1, 11, 2, 1}, {4, 14, 2, 1}}};
  std::set<uint64_t> gone_;

  void Note(uint64_t session, int waves, uint64_t round = kRound,
            uint32_t attempt = 2) {
    waves_.Note({session, round, attempt, 0}, waves);
  }
  OpenWaves::IsAlive Alive() const {
    return [this](uint64_t session) { return gone_.count(session) == 0; };
  }
  std::optional<std::vector<int32_t>> Due() const {
    return waves_.RanksIfDue(Alive());
  }
};

TEST_F(OpenWavesTest, AWaveWaitsForEveryWorkerThatIsAlive) {
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
  waves_.Advance({});
  EXPECT_EQ(Due(), std::nullopt);
  EXPECT_THAT(waves_.Missing(Alive()), ElementsAre(0, 1, 4));
  Note(10, 2);
  Note(14, 3);
  EXPECT_EQ(Due(), std::nullopt);
  EXPECT_THAT(waves_.Missing(Alive()), ElementsAre(1));
  Note(11, 2);
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
}

TEST_F(OpenWavesTest, ARowOfAWorkerThatIsGoneIsInTheWavesThatItHas) {
  waves_.Advance({});
  Note(10, 3);
  Note(11, 2);
  Note(14, 1);
  gone_ = {11, 14};
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1)));
  waves_.Advance({});
  EXPECT_THAT(Due(), Optional(ElementsAre(0)));
  waves_.Advance({});
  EXPECT_TRUE(waves_.done());
}

TEST_F(OpenWavesTest, NobodyWaitsForARowThatAShardLacks) {
  Note(10, 3);
  Note(14, 3);
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
  waves_.Advance({1});
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 4)));
}

TEST_F(OpenWavesTest, AWaveMayHaveNoRow) {
  waves_.Advance({});
  gone_ = {10, 11, 14};
  EXPECT_THAT(Due(), Optional(IsEmpty()));
}

TEST_F(OpenWavesTest, OtherRowsAndOlderReportsChangeNothing) {
  waves_.Advance({});
  Note(10, 3);
  Note(14, 3);
  Note(11, 3, kRound - 1);
  Note(11, 3, kRound + 1);
  Note(11, 3, kRound, 1);
  Note(11, 3, kRound, 3);
  Note(12, 3);
  EXPECT_EQ(Due(), std::nullopt);
  Note(11, 2);
  Note(11, 1);
  EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
}

TEST_F(OpenWavesTest, MoreWavesThanThereAreAreAll) {
  for (const uint64_t session : {10, 11, 14}) Note(session, 1000);
  while (!waves_.done()) {
    EXPECT_THAT(Due(), Optional(ElementsAre(0, 1, 4)));
    waves_.Advance({});
  }
}

}  // namespace
}  // namespace agg
