// An outcome has ranks, and attempts by session: which session a rank had
// follows from the last row of the rank that was used.
#include "server/coordinator/restored_rounds.h"

#include <cstdint>
#include <map>
#include <vector>

#include "server/combine/row_info.h"
#include "server/coordinator/kept_outcomes.h"
#include "server/coordinator/round_result.h"

namespace agg {
namespace {

RowOrigin OriginOf(const RecordedOutcome& recorded, const UsedRow& used) {
  const auto included = recorded.included.find(used.session);
  if (included == recorded.included.end()) return RowOrigin();
  return {included->first, included->second, {}};
}

void AddRow(int32_t rank, const RowOrigin& origin, RoundReport* report) {
  RowInfo row;
  row.rank = rank;
  report->rows.push_back(row);
  report->origins.push_back(origin);
}

void AddRows(const RecordedOutcome& recorded,
             const std::map<int32_t, UsedRow>& used_rows, RoundReport* report) {
  for (const int32_t rank : recorded.outcome.ranks) {
    const auto used = used_rows.find(rank);
    AddRow(rank,
           used == used_rows.end() ? RowOrigin()
                                   : OriginOf(recorded, used->second),
           report);
  }
  for (const int32_t rank : recorded.outcome.excluded_ranks) {
    AddRow(rank, RowOrigin(), report);
  }
}

}  // namespace

std::vector<RoundReport> RestoredReports(const JobRecord& record,
                                         const VersionId& reported) {
  std::vector<RoundReport> reports;
  for (const RecordedOutcome& recorded : record.outcomes) {
    const RoundResult& outcome = recorded.outcome;
    if (!(reported < VersionId{outcome.epoch, outcome.version})) continue;
    RoundReport report;
    report.restored = true;
    report.epoch = outcome.epoch;
    // Of an older one the record has no more than that it was there.
    if (outcome.epoch >= record.history) report.history = record.history;
    report.round = outcome.round;
    report.version = outcome.version;
    report.applied = outcome.kind == OutcomeKind::kApplied;
    report.message = outcome.message;
    report.combination = outcome.combination;
    report.decision.excluded_ranks = outcome.excluded_ranks;
    report.decision.finished = outcome.finished;
    AddRows(recorded, record.used_rows, &report);
    reports.push_back(report);
  }
  return reports;
}

}  // namespace agg
