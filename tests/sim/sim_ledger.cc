#include "tests/sim/sim_ledger.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agg {

void SimLedger::CheckRows(const RoundResult& outcome) {
  const std::pair<uint64_t, uint64_t> id(outcome.epoch, outcome.version);
  const auto [known, is_new] = rows_.insert({id, outcome.ranks});
  if (!is_new && known->second != outcome.ranks) {
    Fail(absl::StrCat("version ", outcome.version, " made by ", outcome.epoch,
                      " has rows of {", absl::StrJoin(known->second, " "),
                      "} and of {", absl::StrJoin(outcome.ranks, " "), "}"));
  }
  const std::set<int32_t> once(outcome.ranks.begin(), outcome.ranks.end());
  if (once.size() != outcome.ranks.size()) {
    Fail(absl::StrCat("a rank is twice in version ", outcome.version));
  }
}

void SimLedger::Told(int32_t rank, uint64_t history,
                     const RoundResult& outcome) {
  CheckRows(outcome);
  const bool in =
      std::count(outcome.ranks.begin(), outcome.ranks.end(), rank) != 0;
  const bool out = std::count(outcome.excluded_ranks.begin(),
                              outcome.excluded_ranks.end(), rank) != 0;
  if (outcome.included && !in && !out) {
    Fail(absl::StrCat("rank ", rank, " is told that round ", outcome.round,
                      " includes it, with rows of {",
                      absl::StrJoin(outcome.ranks, " "), "}"));
  }
  uint64_t& highest = highest_[history];
  highest = std::max(highest, outcome.version);
  told_.push_back({rank, history, outcome});
}

void SimLedger::Pulled(uint64_t history, uint64_t version,
                       const Tensors& parameters) {
  const auto [known, is_new] = pulled_.insert({{history, version}, parameters});
  if (!is_new && !SameBits(known->second, parameters)) {
    Fail(absl::StrCat("version ", version, " of history ", history,
                      " was pulled with two contents"));
  }
  uint64_t& highest = highest_[history];
  highest = std::max(highest, version);
}

void SimLedger::EpochBegan(uint64_t epoch, uint64_t history, uint64_t version,
                           bool excused) {
  if (epoch == epoch_ && history == history_) return;
  epoch_ = epoch;
  const auto seen = highest_.find(history);
  if (history != 0 && seen != highest_.end() && version < seen->second) {
    Fail(absl::StrCat("epoch ", epoch, " begins at version ", version, ", and ",
                      seen->second, " was seen in the same history"));
  }
  if (history == history_) return;
  // Nobody had seen anything of the former history: nothing was taken back.
  if (highest_.count(history_) != 0) {
    ++num_rewinds_;
    if (!excused) {
      Fail(absl::StrCat("epoch ", epoch, " goes back from history ", history_,
                        " to ", history, ", version ", version,
                        ", though no two neighbours were lost"));
    }
  }
  history_ = history;
}

void SimLedger::Ended(uint64_t history,
                      const std::vector<RoundResult>& outcomes) {
  for (const RoundResult& outcome : outcomes) CheckRows(outcome);
  for (const Word& word : told_) {
    const RoundResult& was = word.outcome;
    if (was.round >= outcomes.size()) {
      Fail(absl::StrCat("round ", was.round, " was told and is not there"));
      continue;
    }
    const RoundResult& is = outcomes[was.round];
    if (is.epoch == was.epoch) continue;  // the same version: see CheckRows
    // That version is of a past that was given up.
    if (word.history == history) {
      Fail(absl::StrCat("rank ", word.rank, " was told of round ", was.round,
                        " made by ", was.epoch, ", and it was made by ",
                        is.epoch, " in the same history"));
    }
  }
}

}  // namespace agg
