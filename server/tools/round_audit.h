// Whether a job counted each gradient exactly once (P28): what its round log
// says of each version, against itself and against the workers' own logs. Pure.
#ifndef AGG_SERVER_TOOLS_ROUND_AUDIT_H_
#define AGG_SERVER_TOOLS_ROUND_AUDIT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace agg {

// A row of a round, as the log has it.
struct AuditedRow {
  int32_t rank = 0;
  uint64_t session = 0;  // 0: not known
  uint32_t attempt = 0;
  std::vector<uint32_t> crc32c;  // by shard; empty: not known
  bool included = false;         // in the version
};

// A record of the round log.
struct AuditedRound {
  std::string where;     // "rounds.binlog, record 12", for people
  uint64_t made = 0;     // the epoch that made the version
  uint64_t history = 0;  // 0: not known
  uint64_t round = 0;
  uint64_t version = 0;
  bool restored = false;  // from the job's record, after a recovery
  std::vector<AuditedRow> rows;
};

// A line of a worker's own log: worker_client/row_ledger.h.
struct WorkerRow {
  std::string where;  // "rank0.log:12", for people
  int32_t rank = 0;
  uint64_t round = 0;
  uint64_t session = 0;
  uint32_t attempt = 0;
  std::vector<uint32_t> crc32c;
  bool included = false;
  uint64_t version = 0;  // 0: not known
  uint64_t made = 0;     // 0: not known
  bool rewound = false;
};

struct AuditFindings {
  std::vector<std::string> violations;  // each names its file and line
  std::vector<std::string> notes;       // rewinds, and what was not checked
  std::vector<std::string> checked;     // what was, with counts
  bool nothing = false;                 // there was nothing to check
};

// Records in the order of the log, then the workers' lines, then Finish once.
class RoundAudit {
 public:
  void Add(AuditedRound round);
  void AddWorkerRow(const WorkerRow& row);
  // A line of a worker's log that cannot be read.
  void AddBadLine(const std::string& where) {
    Violation(where, "not a line of a worker's audit log");
  }
  AuditFindings Finish();

 private:
  // Versions that survived, with the index of their record in rounds_.
  using Chain = std::map<uint64_t, size_t>;

  void Violation(const std::string& where, const std::string& what);
  void CheckRows(const AuditedRound& round);
  // Where the record belongs: into the chain, or beside it.
  void Place(size_t index);
  void PlaceAgain(size_t index, size_t former);
  void CheckRestored(const AuditedRound& restored, const AuditedRound& full);
  void GoBack(size_t index);
  void CheckChain();
  // The record that a line is about; null: said, or counted as unknown.
  const AuditedRound* RoundOf(const WorkerRow& row);
  void CompareRows(const WorkerRow& line, const AuditedRound& round);
  void CompareBytes(const WorkerRow& line, const AuditedRow& row,
                    const AuditedRound& round);

  std::vector<AuditedRound> rounds_;
  std::multimap<uint64_t, size_t> by_version_;  // also those given up
  Chain chain_;
  uint64_t history_ = 0;
  std::map<uint64_t, int32_t> rank_of_session_;
  AuditFindings findings_;
  size_t rewinds_ = 0, given_up_ = 0, restored_ = 0;
  size_t rows_ = 0, left_out_ = 0, without_name_ = 0;
  size_t lines_ = 0, agreed_ = 0, sums_ = 0, lines_given_up_ = 0;
  size_t lines_before_ = 0;
};

// "3 rows", "1 row": what violations and notes of an audit call things.
inline std::string Number(size_t number, const std::string& noun) {
  return absl::StrCat(number, " ", noun, number == 1 ? "" : "s");
}

inline std::string NameOf(uint64_t session, uint32_t attempt) {
  return absl::StrCat("session ", session, ", attempt ", attempt);
}

inline std::string VersionOf(const AuditedRound& round) {
  return absl::StrCat("version ", round.version, " made in epoch ", round.made);
}

// Audits the round logs, in the order of their rounds, against the workers'
// logs (ClientOptions::audit_log; any order, may be none). NOT_FOUND or
// DATA_LOSS with the path: a file cannot be read, or is no round log.
// FAILED_PRECONDITION: there is nothing to check. What is wrong with the rounds
// is no error here: AuditFindings::violations.
absl::StatusOr<AuditFindings> AuditFiles(
    const std::vector<std::string>& logs,
    const std::vector<std::string>& workers);

}  // namespace agg

#endif  // AGG_SERVER_TOOLS_ROUND_AUDIT_H_
