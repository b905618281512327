#include "server/rpc/row_reports.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/round/phase.h"
#include "server/round/shard_peer.h"

namespace agg {
namespace {

// A coordinator's stream. Text is "SESSION@ROUND.ATTEMPT ".
class Stream {
 public:
  explicit Stream(RowReports* reports) : reports_(reports) {}

  void Begin(uint64_t epoch) {
    number_ = reports_->Begin(epoch, [this] { ++num_wakes_; });
  }
  int TakeWakes() { return std::exchange(num_wakes_, 0); }
  // What one message has.
  std::string Take() {
    std::string text;
    const RowReport report = reports_->Take(number_);
    offer_ = report.offer;
    ago_.clear();
    for (const CompleteRow& row : report.rows) {
      ago_.push_back(row.ago);
      absl::StrAppend(&text, row.session, "@", row.round, ".", row.attempt,
                      row.waves == 0 ? "" : absl::StrCat("/", row.waves), " ");
    }
    return text;
  }
  // Of the last message.
  const CloseOffer* offer() const { return offer_.get(); }
  const std::vector<absl::Duration>& ago() const { return ago_; }

 private:
  RowReports* const reports_;
  std::shared_ptr<const CloseOffer> offer_;
  std::vector<absl::Duration> ago_;
  uint64_t number_ = 0;
  int num_wakes_ = 0;
};

class RowReportsTest : public testing::Test {
 protected:
  static std::shared_ptr<const CloseOffer> OfferOf(uint64_t round) {
    auto offer = std::make_shared<CloseOffer>();
    offer->round = round;
    return offer;
  }

  FakeClock clock_;
  RowReports reports_{&clock_};
  Stream stream_{&reports_};
};

TEST_F(RowReportsTest, ReportsGoToTheStreamOfTheirEpoch) {
  EXPECT_EQ(stream_.Take(), "");  // it has not begun
  reports_.Add(5, 0, {7, 3, 0});  // there is no stream yet
  stream_.Begin(5);
  EXPECT_EQ(stream_.Take(), "7@3.0 ");
  reports_.Add(5, 1, {8, 3, 2});
  EXPECT_EQ(stream_.TakeWakes(), 1);
  EXPECT_EQ(stream_.Take(), "8@3.2 ");
  EXPECT_EQ(stream_.Take(), "");
  reports_.Add(4, 1, {8, 3, 3});
  reports_.Add(6, 1, {8, 3, 3});
  EXPECT_EQ(stream_.TakeWakes(), 0);
  EXPECT_EQ(stream_.Take(), "");
}

// A coordinator that does not read costs one report per rank: the newest.
TEST_F(RowReportsTest, WhatIsNotTakenInTimeIsPutTogether) {
  stream_.Begin(5);
  for (uint64_t round = 0; round < 100; ++round) {
    for (int32_t rank = 0; rank < 64; ++rank) {
      for (int waves = 1; waves <= 32; ++waves) {
        CompleteRow row;
        row.session = 100 + rank;
        row.round = round;
        row.waves = waves;
        reports_.Add(5, rank, row);
      }
    }
  }
  std::string expected;
  for (int rank = 0; rank < 64; ++rank) {
    absl::StrAppend(&expected, 100 + rank, "@99.0/32 ");
  }
  EXPECT_EQ(stream_.Take(), expected);
  EXPECT_EQ(stream_.Take(), "");
}

TEST_F(RowReportsTest, AConnectionThatIsBackGetsTheNewestRoundAgain) {
  stream_.Begin(5);
  reports_.Add(5, 0, {7, 3, 0});
  reports_.Add(5, 1, {8, 3, 0});
  EXPECT_EQ(stream_.Take(), "7@3.0 8@3.0 ");
  reports_.Add(5, 1, {8, 4, 0});
  reports_.Add(5, 0, {7, 4, 0});
  EXPECT_EQ(stream_.Take(), "7@4.0 8@4.0 ");
  reports_.Add(5, 0, {7, 4, 1});
  Stream second(&reports_);
  second.Begin(5);
  EXPECT_EQ(second.Take(), "7@4.1 8@4.0 ");
  reports_.Add(5, 0, {7, 5, 0});
  // The broken one takes nothing away.
  EXPECT_EQ(stream_.Take(), "");
  EXPECT_EQ(second.Take(), "7@5.0 ");
}

TEST_F(RowReportsTest, AnOlderReportThatComesLaterIsNotKept) {
  CompleteRow row{7, 3, 2};
  row.waves = 2;
  reports_.Add(5, 0, row);
  row.waves = 1;
  reports_.Add(5, 0, row);
  reports_.Add(5, 0, {7, 3, 1});
  reports_.Add(5, 0, {7, 2, 9});
  stream_.Begin(5);
  EXPECT_EQ(stream_.Take(), "7@3.2/2 ");
}

// The rank's last client has completed its row, and its thread comes late with
// that: the newer client's report is not told yet.
TEST_F(RowReportsTest, AnOlderSessionTakesNothingFromTheNewerOneOfItsRank) {
  stream_.Begin(5);
  reports_.Add(5, 0, {8, 3, 0});
  reports_.Add(5, 0, {7, 3, 1});
  EXPECT_EQ(stream_.Take(), "8@3.0 ");
  // Also for a stream that begins then.
  stream_.Begin(5);
  EXPECT_EQ(stream_.Take(), "8@3.0 ");
  reports_.Add(5, 0, {7, 3, 2});
  EXPECT_EQ(stream_.Take(), "");
  reports_.Add(5, 0, {9, 3, 0});
  EXPECT_EQ(stream_.Take(), "9@3.0 ");
}

TEST_F(RowReportsTest, ANewEpochHearsNothingOfTheLastOne) {
  stream_.Begin(5);
  reports_.Add(5, 0, {7, 9, 0});
  Stream next(&reports_);
  next.Begin(6);
  EXPECT_EQ(next.Take(), "");
  // The round may be an earlier one, after a rewind.
  reports_.Add(6, 0, {7, 2, 0});
  EXPECT_EQ(next.Take(), "7@2.0 ");
  next.Begin(6);
  EXPECT_EQ(next.Take(), "7@2.0 ");
}

// --- Reports that are held back (P44) ----------------------------------------

TEST_F(RowReportsTest, TheLastRowOfARoundBringsThoseBeforeIt) {
  stream_.Begin(5);
  reports_.Add(5, 0, {7, 3, 0}, /*more=*/true);
  clock_.Advance(absl::Milliseconds(30));
  reports_.Add(5, 2, {9, 3, 0}, /*more=*/true);
  clock_.Advance(absl::Milliseconds(5));
  EXPECT_EQ(stream_.TakeWakes(), 0);
  EXPECT_EQ(stream_.Take(), "");  // though something else may wake it
  reports_.AddOffer(5, OfferOf(3));
  EXPECT_EQ(stream_.TakeWakes(), 0);
  reports_.Add(5, 1, {8, 3, 0});
  EXPECT_EQ(stream_.TakeWakes(), 1);
  EXPECT_EQ(stream_.Take(), "7@3.0 8@3.0 9@3.0 ");
  ASSERT_NE(stream_.offer(), nullptr);
  EXPECT_EQ(stream_.offer()->round, 3u);
  EXPECT_EQ(stream_.ago(), (std::vector<absl::Duration>{
                               absl::Milliseconds(35), absl::ZeroDuration(),
                               absl::Milliseconds(5)}));
  // The next round's are held back again.
  reports_.Add(5, 0, {7, 4, 0}, /*more=*/true);
  EXPECT_EQ(stream_.TakeWakes(), 0);
  EXPECT_EQ(stream_.Take(), "");
}

TEST_F(RowReportsTest, WhatIsHeldBackGoesWithAFlush) {
  stream_.Begin(5);
  reports_.Flush();
  EXPECT_EQ(stream_.TakeWakes(), 0);
  reports_.Add(5, 0, {7, 3, 0}, /*more=*/true);
  reports_.Flush();
  EXPECT_EQ(stream_.TakeWakes(), 1);
  EXPECT_EQ(stream_.Take(), "7@3.0 ");
  reports_.Flush();
  EXPECT_EQ(stream_.TakeWakes(), 0);
  // Behind a report that nobody has taken yet nothing is held back.
  reports_.Add(5, 1, {8, 3, 0});
  reports_.Add(5, 2, {9, 3, 0}, /*more=*/true);
  EXPECT_EQ(stream_.TakeWakes(), 2);
  EXPECT_EQ(stream_.Take(), "8@3.0 9@3.0 ");
}

// Threads bring them in another order than the engine saw the rows in.
TEST_F(RowReportsTest, NothingIsHeldBackOnceTheRoundIsReleased) {
  stream_.Begin(5);
  reports_.Add(5, 1, {8, 3, 0});  // the last row
  EXPECT_EQ(stream_.Take(), "8@3.0 ");
  EXPECT_EQ(stream_.TakeWakes(), 1);
  reports_.Add(5, 0, {7, 3, 0}, /*more=*/true);
  EXPECT_EQ(stream_.TakeWakes(), 1);
  EXPECT_EQ(stream_.Take(), "7@3.0 ");
  reports_.Add(5, 2, {9, 3, 0}, /*more=*/true);
  EXPECT_EQ(stream_.TakeWakes(), 1);
  EXPECT_EQ(stream_.Take(), "9@3.0 ");
  // It is that round alone, of that epoch.
  reports_.Add(5, 0, {7, 4, 0}, /*more=*/true);
  EXPECT_EQ(stream_.TakeWakes(), 0);
  stream_.Begin(6);
  reports_.Add(6, 0, {7, 4, 0}, /*more=*/true);
  EXPECT_EQ(stream_.TakeWakes(), 0);
}

TEST_F(RowReportsTest, AFlushBeforeTheReportReleasesItToo) {
  stream_.Begin(5);
  reports_.Add(5, 0, {7, 3, 0});
  EXPECT_EQ(stream_.Take(), "7@3.0 ");
  reports_.Flush(5, 4);  // the last row does not report, and comes first
  EXPECT_EQ(stream_.TakeWakes(), 1);
  reports_.Add(5, 0, {7, 4, 0}, /*more=*/true);
  EXPECT_EQ(stream_.TakeWakes(), 1);
  EXPECT_EQ(stream_.Take(), "7@4.0 ");
  // One of a round that is over releases nothing.
  reports_.Add(5, 0, {7, 5, 0}, /*more=*/true);
  reports_.Flush(5, 4);
  reports_.Flush(4, 5);
  EXPECT_EQ(stream_.TakeWakes(), 0);
  EXPECT_EQ(stream_.Take(), "");
  reports_.Flush();
  EXPECT_EQ(stream_.TakeWakes(), 1);
  EXPECT_EQ(stream_.Take(), "7@5.0 ");
  reports_.Flush();  // nothing is held back
  reports_.Add(5, 1, {8, 5, 0}, /*more=*/true);
  EXPECT_EQ(stream_.TakeWakes(), 1);
  EXPECT_EQ(stream_.Take(), "8@5.0 ");
}

// The round may be complete by an older client's row, whose report is old.
TEST_F(RowReportsTest, AnOlderReportReleasesItsRound) {
  stream_.Begin(5);
  reports_.Add(5, 0, {8, 3, 0}, /*more=*/true);
  reports_.Add(5, 0, {7, 3, 0});
  EXPECT_EQ(stream_.TakeWakes(), 1);
  EXPECT_EQ(stream_.Take(), "8@3.0 ");
}

TEST_F(RowReportsTest, AConnectionThatIsBackGetsWhatIsHeldBackAndNoOffer) {
  stream_.Begin(5);
  reports_.AddOffer(5, OfferOf(3));
  reports_.Add(5, 0, {7, 3, 0});
  EXPECT_EQ(stream_.Take(), "7@3.0 ");
  EXPECT_NE(stream_.offer(), nullptr);
  reports_.Add(5, 1, {8, 3, 0}, /*more=*/true);
  Stream second(&reports_);
  second.Begin(5);
  EXPECT_EQ(second.Take(), "7@3.0 8@3.0 ");
  EXPECT_EQ(second.offer(), nullptr);  // then the round is closed as ever
}

TEST_F(RowReportsTest, AnOfferOfAnEarlierRoundIsNotTold) {
  stream_.Begin(5);
  reports_.AddOffer(5, OfferOf(3));
  reports_.Add(5, 0, {7, 4, 0});
  reports_.AddOffer(5, OfferOf(3));
  reports_.AddOffer(4, OfferOf(4));
  EXPECT_EQ(stream_.Take(), "7@4.0 ");
  EXPECT_EQ(stream_.offer(), nullptr);
}

}  // namespace
}  // namespace agg
