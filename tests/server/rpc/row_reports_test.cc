#include "server/rpc/row_reports.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/round/shard_peer.h"

namespace agg {
namespace {

// What a coordinator's stream gets: "SESSION@ROUND.ATTEMPT ".
class Heard {
 public:
  RowReports::Sink sink() {
    return [this](const std::vector<CompleteRow>& rows) {
      for (const CompleteRow& row : rows) {
        absl::StrAppend(&text_, row.session, "@", row.round, ".", row.attempt,
                        " ");
      }
    };
  }
  std::string Take() { return std::exchange(text_, ""); }

 private:
  std::string text_;
};

TEST(RowReportsTest, ReportsGoToTheStreamOfTheirEpoch) {
  RowReports reports;
  Heard heard;
  reports.Add(5, 0, {7, 3, 0});  // there is no stream yet
  reports.Begin(5, heard.sink());
  EXPECT_EQ(heard.Take(), "7@3.0 ");
  reports.Add(5, 1, {8, 3, 2});
  EXPECT_EQ(heard.Take(), "8@3.2 ");
  reports.Add(4, 1, {8, 3, 2});
  reports.Add(6, 1, {8, 3, 2});
  EXPECT_EQ(heard.Take(), "");
}

TEST(RowReportsTest, AConnectionThatIsBackGetsTheNewestRoundAgain) {
  RowReports reports;
  Heard first;
  reports.Begin(5, first.sink());
  reports.Add(5, 0, {7, 3, 0});
  reports.Add(5, 1, {8, 3, 0});
  reports.Add(5, 1, {8, 4, 0});
  reports.Add(5, 0, {7, 4, 0});
  reports.Add(5, 0, {7, 4, 1});
  EXPECT_EQ(first.Take(), "7@3.0 8@3.0 8@4.0 7@4.0 7@4.1 ");
  Heard second;
  reports.Begin(5, second.sink());
  EXPECT_EQ(second.Take(), "7@4.1 8@4.0 ");
  reports.Add(5, 0, {7, 5, 0});
  EXPECT_EQ(first.Take(), "");
  EXPECT_EQ(second.Take(), "7@5.0 ");
}

TEST(RowReportsTest, AnOlderReportThatComesLaterIsNotKept) {
  RowReports reports;
  reports.Add(5, 0, {7, 3, 2});
  reports.Add(5, 0, {7, 3, 1});
  Heard heard;
  reports.Begin(5, heard.sink());
  EXPECT_EQ(heard.Take(), "7@3.2 ");
}

TEST(RowReportsTest, ANewEpochHearsNothingOfTheLastOne) {
  RowReports reports;
  Heard heard;
  reports.Begin(5, heard.sink());
  reports.Add(5, 0, {7, 9, 0});
  Heard next;
  reports.Begin(6, next.sink());
  EXPECT_EQ(next.Take(), "");
  // The round may be an earlier one, after a rewind.
  reports.Add(6, 0, {7, 2, 0});
  EXPECT_EQ(next.Take(), "7@2.0 ");
  reports.Begin(6, next.sink());
  EXPECT_EQ(next.Take(), "7@2.0 ");
}

}  // namespace
}  // namespace agg
