// Logs of jobs with one thing wrong in each, and what the audit says of it.
#include "server/tools/round_audit.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/round/round_report.h"
#include "server/round_log/record_file.h"
#include "server/round_log/round_record.h"
#include "tests/server/round_log/logged_rounds.h"
#include "worker_client/row_ledger.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kEpoch = 1000;
constexpr uint64_t kFirstSession = 4096;
constexpr int kRanks = 3;

std::vector<uint32_t> Sums(int rank, uint64_t round) {
  return {static_cast<uint32_t>(100 * round) + rank, 7};
}

// Three ranks, all included.
RoundReport Round(uint64_t round, uint64_t made = kEpoch,
                  uint64_t history = kEpoch) {
  RoundReport report;
  report.epoch = made;
  report.history = history;
  report.round = round;
  report.version = round + 1;
  report.applied = true;
  report.rows.resize(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    report.rows[rank].rank = rank;
    report.rows[rank].session = kFirstSession + rank;
    report.rows[rank].row_crc32c = Sums(rank, round);
  }
  return report;
}

RoundReport Restored(uint64_t round, uint64_t made, uint64_t history) {
  RoundReport report = Round(round, made, history);
  report.restored = true;
  for (ReportedRow& row : report.rows) row.row_crc32c.clear();
  return report;
}

// What the worker of the rank was told of Round(round).
AuditedPush Told(int rank, uint64_t round, uint64_t made = kEpoch) {
  AuditedPush push;
  push.rank = rank;
  push.row.round = round;
  push.row.session = kFirstSession + rank;
  push.row_crc32c = Sums(rank, round);
  push.included = true;
  push.version = round + 1;
  push.made = made;
  return push;
}

// A job with `num_rounds` rounds; a test changes something.
class AuditFilesTest : public ::testing::Test {
 protected:
  void Make(uint64_t num_rounds) {
    for (uint64_t round = 0; round < num_rounds; ++round) {
      rounds.push_back(Round(round));
      for (int rank = 0; rank < kRanks; ++rank) {
        told[rank].push_back(Told(rank, round));
      }
    }
  }

  absl::StatusOr<AuditFindings> Audit() {
    log = FreshPath("audited.binlog");
    auto file = RecordFile::Open(log);
    EXPECT_TRUE(file.ok()) << file.status();
    for (size_t i = 0; i < rounds.size(); ++i) {
      v1::RoundLogRecord record = ToProto(rounds[i]);
      if (i == 0) *record.mutable_run() = ToProto(SomeRun());
      EXPECT_TRUE((*file)->Append(record.SerializeAsString()).ok());
    }
    std::vector<std::string> workers;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (told[rank].empty()) continue;
      workers.push_back(FreshPath(absl::StrCat("rank", rank, ".log")));
      std::string text;
      for (const AuditedPush& push : told[rank]) {
        absl::StrAppend(&text, ToLine(push), "\n");
      }
      WriteFileBytes(workers.back(), text);
    }
    return AuditFiles({log}, workers);
  }
  std::vector<std::string> Violations() {
    const absl::StatusOr<AuditFindings> findings = Audit();
    EXPECT_TRUE(findings.ok()) << findings.status();
    return findings.ok() ? findings->violations : std::vector<std::string>();
  }

  std::string log;
  std::vector<RoundReport> rounds;
  std::vector<AuditedPush> told[kRanks];
};

TEST_F(AuditFilesTest, ACleanRun) {
  Make(5);
  const absl::StatusOr<AuditFindings> findings = Audit();
  ASSERT_TRUE(findings.ok()) << findings.status();
  EXPECT_THAT(findings->violations, IsEmpty());
  EXPECT_THAT(findings->notes, IsEmpty());
  EXPECT_THAT(
      findings->checked,
      ElementsAre("versions 1 to 5: 5 survive; 0 rewinds, 0 given up, 0 "
                  "restored records",
                  "15 rows included, 0 left out",
                  "15 worker's lines: 15 agree on `included`, 15 rows by "
                  "CRC32C, 0 of rounds given up"));
}

TEST_F(AuditFilesTest, ALeftOutRowThatItsWorkerKnowsOf) {
  Make(2);
  rounds[1].decision.excluded_ranks = {2};
  told[2][1].included = false;
  EXPECT_THAT(Violations(), IsEmpty());
}

TEST_F(AuditFilesTest, ARowThatCountsTwice) {
  Make(3);
  rounds[1].rows.push_back(rounds[1].rows[2]);
  rounds[1].rows.back().session = 5000;
  rounds[1].rows.back().row_crc32c.clear();
  EXPECT_THAT(Violations(),
              ElementsAre(AllOf(HasSubstr("audited.binlog, record 2"),
                                HasSubstr("rank 2 is twice in round 1"))));
  rounds[1].rows.back() = rounds[1].rows[2];
  rounds[1].rows.back().rank = 3;
  EXPECT_THAT(Violations(),
              Contains(HasSubstr("session 4098, attempt 0 is twice")));
}

TEST_F(AuditFilesTest, AVersionThatIsMadeTwice) {
  Make(3);
  rounds.push_back(rounds[1]);
  EXPECT_THAT(Violations(),
              ElementsAre(AllOf(HasSubstr("record 4"),
                                HasSubstr("version 2 made in epoch 1000 is "
                                          "twice in the log"))));
  rounds.back().epoch = 1001;
  EXPECT_THAT(Violations(),
              ElementsAre(HasSubstr("version 2 made in epoch 1001 repeats")));
}

// A gradient that a version takes again from the round before.
TEST_F(AuditFilesTest, AGradientOfAnotherRound) {
  Make(3);
  rounds[2].rows[1] = rounds[1].rows[1];
  EXPECT_THAT(Violations(),
              ElementsAre(AllOf(HasSubstr("rank1.log:3"),
                                HasSubstr("another CRC32C in"),
                                HasSubstr("audited.binlog, record 3"))));
}

TEST_F(AuditFilesTest, AVersionThatIsLost) {
  Make(4);
  rounds.erase(rounds.begin() + 1);
  EXPECT_THAT(Violations(),
              AllOf(Contains(AllOf(HasSubstr("record 2"),
                                   HasSubstr("version 2 is missing"))),
                    Contains(AllOf(HasSubstr("rank0.log:2"),
                                   HasSubstr("which the log does not have")))));
}

TEST_F(AuditFilesTest, TheLastVersionIsLost) {
  Make(4);
  rounds.pop_back();
  EXPECT_THAT(Violations(),
              Contains(AllOf(HasSubstr("rank0.log:4"),
                             HasSubstr("told of version 4 made in epoch "
                                       "1000, which the log does not have"))));
}

TEST_F(AuditFilesTest, ARowThatIsLost) {
  Make(3);
  rounds[1].rows.pop_back();
  EXPECT_THAT(Violations(),
              ElementsAre(AllOf(HasSubstr("rank2.log:2"),
                                HasSubstr("session 4098, attempt 0 is lost"),
                                HasSubstr("record 2"))));
}

TEST_F(AuditFilesTest, ARowThatItsWorkerWasToldIsNotIncluded) {
  Make(3);
  told[0][2].included = false;
  EXPECT_THAT(Violations(),
              ElementsAre(AllOf(HasSubstr("rank0.log:3"),
                                HasSubstr("counts, told as not included"))));
}

TEST_F(AuditFilesTest, ARewind) {
  Make(5);
  // From version 5 back to 3, and on; the workers do their rounds again.
  for (uint64_t round = 3; round < 6; ++round) {
    rounds.push_back(Round(round, 2000, 2000));
    for (ReportedRow& row : rounds.back().rows) row.attempt = 1;
    for (int rank = 0; rank < kRanks; ++rank) {
      told[rank].push_back(Told(rank, round, 2000));
      told[rank].back().row.attempt = 1;
    }
  }
  // What nobody heard the end of.
  AuditedPush rewound = Told(0, 5);
  rewound.rewound = true;
  rewound.included = false;
  told[0].push_back(rewound);
  const absl::StatusOr<AuditFindings> findings = Audit();
  ASSERT_TRUE(findings.ok()) << findings.status();
  EXPECT_THAT(findings->violations, IsEmpty());
  EXPECT_THAT(
      findings->notes,
      ElementsAre(AllOf(
          HasSubstr("record 6"),
          HasSubstr("rewind: from version 5 to version 3 made in epoch 1000; 2 "
                    "versions given up, history 2000"))));
  EXPECT_THAT(findings->checked[0], HasSubstr("versions 1 to 6: 6 survive"));
  // The abandoned past goes on.
  rounds.push_back(Round(6));
  EXPECT_THAT(Violations(), ElementsAre(AllOf(HasSubstr("record 9"),
                                              HasSubstr("history 1000 goes on "
                                                        "after history 2000 "
                                                        "has replaced it"))));
}

TEST_F(AuditFilesTest, ANewSeed) {
  Make(2);
  rounds.push_back(Round(0, 3000, 3000));
  const absl::StatusOr<AuditFindings> findings = Audit();
  ASSERT_TRUE(findings.ok()) << findings.status();
  EXPECT_THAT(findings->violations, IsEmpty());
  EXPECT_THAT(findings->notes,
              ElementsAre(HasSubstr("rewind: seeded again after version 2")));
}

// The coordinator was killed before it had logged the last rounds.
TEST_F(AuditFilesTest, ARecordThatWasRestored) {
  Make(5);
  const RoundReport after = rounds[4];
  rounds.resize(3);
  rounds.push_back(Restored(2, kEpoch, kEpoch));
  rounds.push_back(Restored(3, kEpoch, kEpoch));
  rounds.push_back(after);
  EXPECT_THAT(Violations(), IsEmpty());
  // Its session cannot be told any more.
  rounds[4].rows[1] = ReportedRow();
  rounds[4].rows[1].rank = 1;
  EXPECT_THAT(Violations(), IsEmpty());
  // It contradicts the round's own record.
  rounds[3].rows[2].attempt = 1;
  EXPECT_THAT(Violations(),
              ElementsAre(AllOf(HasSubstr("record 4"),
                                HasSubstr("session 4098, attempt 1 is in "
                                          "version 3"),
                                HasSubstr("record 3"))));
}

TEST_F(AuditFilesTest, NothingToCheck) {
  EXPECT_TRUE(absl::IsNotFound(AuditFiles({"/no/such/log"}, {}).status()));
  Make(2);
  rounds.clear();
  EXPECT_THAT(std::string(Audit().status().message()),
              HasSubstr("nothing to check"));
}

TEST_F(AuditFilesTest, AWorkersLogThatIsNone) {
  Make(1);
  ASSERT_TRUE(Audit().ok());
  const std::string worker = FreshPath("other.log");
  WriteFileBytes(worker, "");
  EXPECT_THAT(std::string(AuditFiles({log}, {worker}).status().message()),
              HasSubstr("nothing to check: no row is in"));
  const std::string line = ToLine(Told(0, 0));
  WriteFileBytes(worker, absl::StrCat(line, "\nno line\n", line, "\n{\"ro"));
  const absl::StatusOr<AuditFindings> findings = AuditFiles({log}, {worker});
  ASSERT_TRUE(findings.ok()) << findings.status();
  EXPECT_THAT(findings->violations,
              ElementsAre(AllOf(HasSubstr("other.log:2"),
                                HasSubstr("not a line of a worker's"))));
  EXPECT_THAT(findings->notes, ElementsAre(AllOf(HasSubstr("other.log:4"),
                                                 HasSubstr("cut short"))));
}

}  // namespace
}  // namespace agg
