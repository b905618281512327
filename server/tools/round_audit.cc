// The log against itself: it is walked once and makes the chain of versions
// that survived; what begins another history cuts off what it gives up. The
// workers' lines are in round_audit_workers.cc.
#include "server/tools/round_audit.h"

#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/tools/audit_words.h"

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

}  // namespace agg
