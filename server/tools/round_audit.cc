// The log against itself: it is walked once and makes the chain of versions
// that survived; what begins another history cuts off what it gives up. Then
// the workers' lines.
#include "server/tools/round_audit.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace agg {

void RoundAudit::Violation(const std::string& where, const std::string& what) {
  findings_.violations.push_back(absl::StrCat(where, ": ", what));
}

void RoundAudit::Add(AuditedRound round) {
  if (round.history == 0 && !round.restored) {
    ++old_records_;
    return;
  }
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
