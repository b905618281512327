// Records and lines become plain values here, each with the place where it
// stands, so that a violation can be looked up.
#include "server/tools/audit_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "server/base/status_macros.h"
#include "server/round/round_report.h"
#include "server/round_log/record_reader.h"
#include "server/round_log/round_record.h"

namespace agg {
namespace {

AuditedRound RoundOf(const RoundReport& report, const std::string& where) {
  AuditedRound round;
  round.where = where;
  round.made = report.epoch;
  round.history = report.history;
  round.round = report.round;
  round.version = report.version;
  round.restored = report.restored;
  const std::vector<int32_t>& excluded = report.decision.excluded_ranks;
  for (size_t i = 0; i < report.rows.size(); ++i) {
    AuditedRow row;
    row.rank = report.rows[i].rank;
    row.included = report.applied && std::find(excluded.begin(), excluded.end(),
                                               row.rank) == excluded.end();
    if (i < report.origins.size()) {
      row.session = report.origins[i].session;
      row.attempt = report.origins[i].attempt;
      row.crc32c = report.origins[i].row_crc32c;
    }
    round.rows.push_back(std::move(row));
  }
  return round;
}

absl::Status AddLog(const std::string& path, RoundAudit* audit,
                    std::vector<std::string>* notes) {
  AGG_ASSIGN_OR_RETURN(RecordReader reader, RecordReader::Open(path));
  v1::RoundLogRecord record;
  for (size_t number = 1;; ++number) {
    const absl::StatusOr<bool> more = reader.Next(&record);
    if (!more.ok()) {
      return absl::Status(more.status().code(),
                          absl::StrCat(path, ": ", more.status().message()));
    }
    if (!*more) break;
    audit->Add(
        RoundOf(FromProto(record), absl::StrCat(path, ", record ", number)));
  }
  if (reader.truncated_bytes() > 0) {
    notes->push_back(absl::StrCat(path, ": the last ", reader.truncated_bytes(),
                                  " bytes are a record that was cut short"));
  }
  return absl::OkStatus();
}

// False: not a line of worker_client/row_ledger.h.
bool ParseLine(const std::string& line, WorkerRow* row) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  const auto number = [&](const char* name, auto* value) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_number_unsigned()) return false;
    found->get_to(*value);
    return true;
  };
  const auto truth = [&](const char* name, bool* value) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_boolean()) return false;
    found->get_to(*value);
    return true;
  };
  const auto sums = json.find("row_crc32c");
  if (sums == json.end() || !sums->is_array()) return false;
  for (const Json& sum : *sums) {
    if (!sum.is_number_unsigned()) return false;
    row->crc32c.push_back(sum.get<uint32_t>());
  }
  return number("round", &row->round) && number("rank", &row->rank) &&
         number("session", &row->session) && number("attempt", &row->attempt) &&
         number("version", &row->version) && number("made", &row->made) &&
         truth("included", &row->included) && truth("rewound", &row->rewound);
}

absl::Status AddWorker(const std::string& path, RoundAudit* audit,
                       std::vector<std::string>* notes) {
  std::ifstream file(path, std::ios::binary);
  if (!file || (file.peek(), file.bad())) {
    return absl::NotFoundError(absl::StrCat("cannot read ", path));
  }
  file.clear();
  std::string line;
  size_t number = 0;
  size_t good = 0;
  while (std::getline(file, line)) {
    const std::string where = absl::StrCat(path, ":", ++number);
    WorkerRow row;
    row.where = where;
    if (ParseLine(line, &row)) {
      ++good;
      audit->AddWorkerRow(row);
    } else if (file.eof()) {  // without a newline: cut short
      notes->push_back(absl::StrCat(where, ": a line that was cut short"));
    } else {
      audit->AddBadLine(where);
    }
  }
  if (good > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("nothing to check: no row is in ", path));
}

}  // namespace

absl::StatusOr<AuditFindings> AuditFiles(
    const std::vector<std::string>& logs,
    const std::vector<std::string>& workers) {
  RoundAudit audit;
  std::vector<std::string> notes;
  for (const std::string& path : logs) {
    AGG_RETURN_IF_ERROR(AddLog(path, &audit, &notes));
  }
  for (const std::string& path : workers) {
    AGG_RETURN_IF_ERROR(AddWorker(path, &audit, &notes));
  }
  AuditFindings findings = audit.Finish();
  if (findings.nothing) {
    return absl::FailedPreconditionError(
        "nothing to check: no round of this release is in the logs");
  }
  findings.notes.insert(findings.notes.begin(), notes.begin(), notes.end());
  return findings;
}

}  // namespace agg
