// The log against itself: it is walked once and makes the chain of versions
// that survived; what begins another history cuts off what it gives up. Then
// the workers' lines.
#include "server/tools/round_audit.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/base/json.h"
#include "server/base/status_macros.h"
#include "server/round/round_report.h"
#include "server/round_log/record_file.h"
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
  for (const ReportedRow& row : report.rows) {
    const bool included =
        report.applied &&
        std::find(excluded.begin(), excluded.end(), row.rank) == excluded.end();
    round.rows.push_back(
        {row.rank, row.session, row.attempt, row.row_crc32c, included});
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
        "nothing to check: no round is in the logs");
  }
  findings.notes.insert(findings.notes.begin(), notes.begin(), notes.end());
  return findings;
}

void RoundAudit::Violation(const std::string& where, const std::string& what) {
  findings_.violations.push_back(absl::StrCat(where, ": ", what));
}

void RoundAudit::Add(AuditedRound round) {
  if (round.restored) ++restored_;
  CheckRows(round);
  rounds_.push_back(std::move(round));
  const size_t index = rounds_.size() - 1;
  by_version_.emplace(rounds_[index].version, index);
  Place(index);
}

void RoundAudit::CheckRows(const AuditedRound& round) {
  if (round.version != round.round + 1) {
    Violation(round.where,
              absl::StrCat("round ", round.round, " made version ",
                           round.version, " instead of ", round.round + 1));
  }
  std::set<int32_t> ranks;
  std::set<uint64_t> sessions;
  for (const AuditedRow& row : round.rows) {
    if (!ranks.insert(row.rank).second) {
      Violation(round.where, absl::StrCat("rank ", row.rank,
                                          " is twice in round ", round.round));
    }
    if (row.session == 0) continue;
    if (!sessions.insert(row.session).second) {
      Violation(round.where, absl::StrCat(NameOf(row.session, row.attempt),
                                          " is twice in round ", round.round));
    }
    const auto known = rank_of_session_.emplace(row.session, row.rank).first;
    if (known->second != row.rank) {
      Violation(round.where,
                absl::StrCat("session ", row.session, " counts for rank ",
                             row.rank, " and before for rank ", known->second));
    }
  }
}

void RoundAudit::Place(size_t index) {
  const AuditedRound& round = rounds_[index];
  const auto here = chain_.find(round.version);
  if (here != chain_.end() && rounds_[here->second].made == round.made) {
    PlaceAgain(index, here->second);
    return;
  }
  if (round.history > history_) {
    if (!chain_.empty()) GoBack(index);
    history_ = round.history;
  } else if (round.history != 0 && round.history < history_) {
    Violation(round.where,
              absl::StrCat("history ", round.history, " goes on after history ",
                           history_, " has replaced it"));
    return;
  } else if (here != chain_.end()) {
    const AuditedRound& former = rounds_[here->second];
    // The rounds that told of the rewind were lost with their coordinator.
    const bool unseen = round.history == 0 && round.made > former.made;
    if (!unseen) {
      Violation(round.where,
                absl::StrCat(VersionOf(round), " repeats ", VersionOf(former),
                             " (", former.where, ") without a rewind"));
      return;
    }
    GoBack(index);
  }
  chain_[round.version] = index;
}

void RoundAudit::PlaceAgain(size_t index, size_t former) {
  const bool restored = rounds_[index].restored;
  if (!restored && !rounds_[former].restored) {
    Violation(rounds_[index].where,
              absl::StrCat(VersionOf(rounds_[index]),
                           " is twice in the log: ", rounds_[former].where));
    return;
  }
  if (restored && !rounds_[former].restored) {
    CheckRestored(rounds_[index], rounds_[former]);
  }
  if (!restored) {
    CheckRestored(rounds_[former], rounds_[index]);
    chain_[rounds_[index].version] = index;
  }
}

void RoundAudit::CheckRestored(const AuditedRound& restored,
                               const AuditedRound& full) {
  const auto names = [](const AuditedRound& round) {
    std::set<std::pair<uint64_t, uint32_t>> result;
    for (const AuditedRow& row : round.rows) {
      if (row.included) result.emplace(row.session, row.attempt);
    }
    return result;
  };
  const auto in_full = names(full);
  for (const auto& name : names(restored)) {
    if (name.first == 0 || in_full.count(name) != 0) continue;
    Violation(restored.where,
              absl::StrCat(NameOf(name.first, name.second), " is in ",
                           VersionOf(restored),
                           " by the job's record, and not by ", full.where));
  }
}

void RoundAudit::GoBack(size_t index) {
  const AuditedRound& round = rounds_[index];
  const uint64_t newest = chain_.rbegin()->first;
  const auto first = chain_.lower_bound(round.version);
  const auto number = static_cast<size_t>(std::distance(first, chain_.end()));
  chain_.erase(first, chain_.end());
  ++rewinds_;
  given_up_ += number;
  const std::string lost = absl::StrCat("; ", Number(number, "version"),
                                        " given up, history ", round.history);
  if (round.version == 1) {
    findings_.notes.push_back(absl::StrCat(
        round.where, ": rewind: seeded again after version ", newest, lost));
    return;
  }
  const auto target = chain_.find(round.version - 1);
  findings_.notes.push_back(absl::StrCat(
      round.where, ": rewind: from version ", newest, " to ",
      target == chain_.end() ? absl::StrCat("version ", round.version - 1)
                             : VersionOf(rounds_[target->second]),
      lost));
}

void RoundAudit::CheckChain() {
  const AuditedRound* former = nullptr;
  for (const auto& [version, index] : chain_) {
    const AuditedRound& round = rounds_[index];
    const uint64_t expected = former == nullptr ? version : former->version + 1;
    if (version != expected) {
      Violation(round.where,
                version == expected + 1
                    ? absl::StrCat("version ", expected, " is missing")
                    : absl::StrCat("versions ", expected, " to ", version - 1,
                                   " are missing"));
    }
    if (former != nullptr && round.made < former->made) {
      Violation(round.where,
                absl::StrCat(VersionOf(round), " follows ", VersionOf(*former),
                             ": a former coordinator's"));
    }
    for (const AuditedRow& row : round.rows) {
      ++(row.included ? rows_ : left_out_);
      if (row.included && row.session == 0) ++without_name_;
    }
    former = &round;
  }
}

// The workers' lines against the log, and what an audit says at its end.

void RoundAudit::AddWorkerRow(const WorkerRow& row) {
  ++lines_;
  if (row.rewound) {
    ++lines_given_up_;  // the worker never heard what became of it
    return;
  }
  const AuditedRound* const round = RoundOf(row);
  if (round != nullptr) CompareRows(row, *round);
}

const AuditedRound* RoundAudit::RoundOf(const WorkerRow& row) {
  const uint64_t version = row.round + 1;
  const auto [begin, end] = by_version_.equal_range(version);
  const auto same = std::find_if(begin, end, [&](const auto& entry) {
    return row.made != 0 && rounds_[entry.second].made == row.made &&
           !rounds_[entry.second].restored;
  });
  if (same != end) return &rounds_[same->second];
  const auto survived = chain_.find(version);
  if (survived != chain_.end() &&
      (row.made == 0 || rounds_[survived->second].made == row.made)) {
    return &rounds_[survived->second];
  }
  if (row.made != 0 && row.made < history_) {
    ++lines_given_up_;
  } else if (chain_.empty() || version < chain_.begin()->first) {
    ++lines_before_;
  } else {
    Violation(row.where, absl::StrCat("the worker was told of version ",
                                      version, " made in epoch ", row.made,
                                      ", which the log does not have"));
  }
  return nullptr;
}

void RoundAudit::CompareRows(const WorkerRow& line, const AuditedRound& round) {
  const auto is_it = [&](const AuditedRow& row) {
    return row.session == line.session && row.attempt == line.attempt;
  };
  const auto found = std::find_if(round.rows.begin(), round.rows.end(), is_it);
  const bool known = found != round.rows.end();
  const bool included = known && found->included;
  const std::string name =
      absl::StrCat("the row of ", NameOf(line.session, line.attempt));
  if (!known && line.included &&
      std::any_of(round.rows.begin(), round.rows.end(), [&](const auto& row) {
        return row.session == 0 && row.rank == line.rank && row.included;
      })) {
    ++agreed_;  // the job's record had the rank alone
  } else if (line.included && !included) {
    Violation(line.where,
              absl::StrCat(name, " is lost: told as included, not ", "in ",
                           VersionOf(round), " (", round.where, ")"));
  } else if (!line.included && included) {
    Violation(line.where,
              absl::StrCat(name, " counts, told as not included: ", "it is in ",
                           VersionOf(round), " (", round.where, ")"));
  } else {
    ++agreed_;
  }
  if (known) CompareBytes(line, *found, round);
}

void RoundAudit::CompareBytes(const WorkerRow& line, const AuditedRow& row,
                              const AuditedRound& round) {
  const std::string name =
      absl::StrCat("the row of ", NameOf(line.session, line.attempt));
  if (row.rank != line.rank) {
    Violation(line.where, absl::StrCat(name, " is rank ", line.rank,
                                       "'s, and counts for rank ", row.rank,
                                       " (", round.where, ")"));
  }
  if (line.crc32c.empty() || row.crc32c.empty()) return;
  ++sums_;
  if (line.crc32c != row.crc32c) {
    Violation(line.where,
              absl::StrCat(name, " has another CRC32C in ", round.where));
  }
}

// --- What is said ------------------------------------------------------------

AuditFindings RoundAudit::Finish() {
  CheckChain();
  findings_.nothing = rounds_.empty();
  const auto note = [this](size_t number, const std::string& what) {
    if (number > 0) findings_.notes.push_back(absl::StrCat(number, " ", what));
  };
  note(without_name_, "included rows are known by their ranks alone");
  note(lines_before_,
       "workers' lines are of rounds before the log: not checked");
  if (!chain_.empty() && chain_.begin()->first > 1) {
    findings_.notes.push_back(
        absl::StrCat("the log begins at version ", chain_.begin()->first));
  }
  if (lines_ == 0) {
    findings_.notes.push_back(
        "no worker's log: what workers were told is not checked");
  }
  if (!chain_.empty()) {
    findings_.checked.push_back(absl::StrCat(
        "versions ", chain_.begin()->first, " to ", chain_.rbegin()->first,
        ": ", chain_.size(), " survive; ", Number(rewinds_, "rewind"), ", ",
        given_up_, " given up, ", Number(restored_, "restored record")));
  }
  findings_.checked.push_back(absl::StrCat(Number(rows_, "row"), " included, ",
                                           left_out_, " left out"));
  if (lines_ > 0) {
    findings_.checked.push_back(
        absl::StrCat(Number(lines_, "worker's line"), ": ", agreed_,
                     " agree on `included`, ", Number(sums_, "row"),
                     " by CRC32C, ", lines_given_up_, " of rounds given up"));
  }
  return std::move(findings_);
}

}  // namespace agg
