#include "server/round_log/round_record.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "server/round/round_numbers.h"
#include "tests/server/round_log/logged_rounds.h"

namespace agg {
namespace {

void ExpectSame(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i])) {
      EXPECT_TRUE(std::isnan(b[i])) << i;
    } else {
      EXPECT_EQ(a[i], b[i]) << i;
    }
  }
}

TEST(RoundRecordTest, AReportComesBack) {
  const RoundReport report = SomeRound(7);
  v1::RoundLogRecord record;
  ASSERT_TRUE(record.ParseFromString(ToProto(report).SerializeAsString()));
  const RoundReport back = FromProto(record);
  EXPECT_EQ(back.epoch, report.epoch);
  EXPECT_EQ(back.round, 7u);
  EXPECT_EQ(back.version, 8u);
  EXPECT_TRUE(back.applied);
  EXPECT_EQ(back.message, report.message);
  EXPECT_EQ(back.combination, report.combination);
  EXPECT_EQ(back.finished_at, report.finished_at);
  EXPECT_EQ(back.history, report.history);
  EXPECT_FALSE(back.restored);
  EXPECT_EQ(back.durations.wait, report.durations.wait);
  EXPECT_EQ(back.durations.publish, report.durations.publish);
  EXPECT_EQ(back.durations.norms, absl::ZeroDuration());
  ASSERT_EQ(back.rows.size(), 3u);
  EXPECT_EQ(back.rows[1].commit_delay, absl::Milliseconds(250));
  EXPECT_EQ(back.rows[1].traceparent, report.rows[1].traceparent);
  EXPECT_EQ(back.rows[1].session, 4097u);
  EXPECT_EQ(back.rows[1].attempt, 2u);
  EXPECT_EQ(back.rows[2].row_crc32c, (std::vector<uint32_t>{9, 0}));
  EXPECT_EQ(back.rows[2].rank, 5);
  EXPECT_EQ(back.rows[2].examples, 10);
  EXPECT_EQ(back.rows[1].loss_scale, 1024.0);
  EXPECT_EQ(back.decision.excluded_ranks, report.decision.excluded_ranks);
  EXPECT_EQ(back.decision.coefficients, report.decision.coefficients);
  EXPECT_EQ(back.decision.tau, 12.3);
  EXPECT_TRUE(std::isnan(back.decision.mu2));
  ASSERT_EQ(back.decision.tensors.size(), 2u);
  EXPECT_EQ(back.decision.tensors[1].orthogonality, 0.625);
  EXPECT_EQ(back.decision.tensors[0].row_norm, 1.5);
  ExpectSame(report.statistics.tensor_grams, back.statistics.tensor_grams);
  ExpectSame(report.statistics.gram, back.statistics.gram);
  ExpectSame(report.statistics.cosines, back.statistics.cosines);
  ExpectSame(report.statistics.row_norms, back.statistics.row_norms);
  EXPECT_EQ(back.statistics.gradient_noise_scale, 77.0);
  ASSERT_EQ(back.statistics.shadows.size(), 1u);
  EXPECT_EQ(back.statistics.shadows[0].scope, Scope::kGlobal);
  EXPECT_EQ(back.statistics.shadows[0].cosine, 0.95);
  ASSERT_EQ(back.shard_seconds.size(), 2u);
  EXPECT_EQ(back.shard_seconds[1].update, 0.016);
  // Nothing of a record is lost on the way through a report.
  EXPECT_EQ(ToProto(back).SerializeAsString(), record.SerializeAsString());
}

TEST(RoundRecordTest, EachNumberComesBack) {
  const RoundReport report = SomeRound(7);
  ExpectSame(ReadRoundNumbers(FromProto(ToProto(report))),
             ReadRoundNumbers(report));
}

// As every number that is younger than the log's format.
TEST(LoggedNumberTest, NewNumbersNeedNoField) {
  const RoundNumber number = {"gradient_norm_spread", "ratio", "A new one.",
                              RoundValue(&Decision::gain)};
  v1::RoundLogRecord record = ToProto(SomeRound(7));
  EXPECT_EQ(record.numbers_size(), 0);
  EXPECT_TRUE(std::isnan(LoggedNumber(number, record)));  // an older log
  LogNumber(number, 2.5, &record);
  v1::RoundLogRecord back;
  ASSERT_TRUE(back.ParseFromString(record.SerializeAsString()));
  EXPECT_EQ(LoggedNumber(number, back), 2.5);
  EXPECT_EQ(back.numbers().at("gradient_norm_spread"), 2.5);
  // An undefined one takes no place.
  LogNumber({"other", "", "", RoundValue(&Decision::gain)}, std::nan(""),
            &record);
  EXPECT_EQ(record.numbers_size(), 1);
  // A name that this release does not know is left alone.
  EXPECT_EQ(FromProto(back).decision.gain, 1.7);
}

// A field that has a number's name, but is not one.
TEST(LoggedNumberTest, OtherFieldsAreNotNumbers) {
  const RoundNumber number = {"finished", "", "", RoundValue(&Decision::gain)};
  v1::RoundLogRecord record;
  LogNumber(number, 1.0, &record);
  EXPECT_FALSE(record.finished());
  EXPECT_EQ(LoggedNumber(number, record), 1.0);
}

TEST(RoundRecordTest, ARunComesBack) {
  const RunDescription run = SomeRun();
  const RunDescription back = FromProto(ToProto(run));
  EXPECT_EQ(back.job, run.job);
  EXPECT_EQ(back.server_version, run.server_version);
  EXPECT_EQ(back.started_at, run.started_at);
  EXPECT_EQ(back.config, run.config);
  EXPECT_EQ(back.workers, 3);
  EXPECT_EQ(back.shards, 2);
  EXPECT_EQ(back.tensors, run.tensors);
  EXPECT_EQ(back.joined, run.joined);
}

TEST(RoundRecordTest, ManyCoefficientsAreLeftOut) {
  RoundReport report = SomeRound(0);
  report.decision.coefficients.assign(kMaxLoggedCoefficients / 3 + 1,
                                      {0.5, 0.25, 0.0});
  const v1::RoundLogRecord record = ToProto(report);
  EXPECT_EQ(record.coefficients_size(), 0);
  EXPECT_EQ(record.rows(0).coefficient(), 0.3125);
}

TEST(RoundRecordTest, AnyRecordCanBeRead) {
  v1::RoundLogRecord record;
  record.add_gram(4.0);  // for no row
  record.add_coefficients(1.0f);
  record.add_shadows()->set_rule("a rule of another release");
  RoundReport report = FromProto(record);
  EXPECT_TRUE(report.decision.coefficients.empty());
  EXPECT_TRUE(report.statistics.cosines.empty());
  EXPECT_TRUE(report.statistics.shadows.empty());
  record.add_rows();
  record.add_rows();
  record.clear_coefficients();
  record.add_coefficients(1.0f);  // for one row of two
  report = FromProto(record);
  EXPECT_TRUE(report.decision.coefficients.empty());
  EXPECT_LE(report.statistics.cosines.size(), 3u);
}

}  // namespace
}  // namespace agg
