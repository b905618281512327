// The workers' lines against the log, and what an audit says at its end.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/tools/audit_words.h"
#include "server/tools/round_audit.h"

namespace agg {

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
  note(old_records_, "records are of a release without audits: not checked");
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
