// What is waited for, by the first that applies: workers to join, the seed,
// more workers than the floor has, rows. A text is said again only when that
// has changed.
#include "server/coordinator/waiting_text.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace agg {
namespace {

// Of a list of ranks: enough to know where to look, few enough for a line.
constexpr int kMaxParts = 10;

enum Phase : int { kNothing, kJoins, kSeed, kFloor, kRows, kJoining };

Phase PhaseOf(const Waiting& waiting) {
  const auto expected = static_cast<size_t>(std::max(waiting.expected, 0));
  if (!waiting.started && waiting.joined.size() < expected) return kJoins;
  if (!waiting.seeded) return waiting.seed_rank < 0 ? kNothing : kSeed;
  // Without a commit all compute, and nobody waits for another, but those who
  // have come since (the others may evaluate).
  if (waiting.rows_since == absl::InfiniteFuture()) {
    return waiting.joining.empty() ? kNothing : kJoining;
  }
  if (!waiting.floor.empty()) return kFloor;
  return waiting.uncommitted.empty() ? kNothing : kRows;
}

// The lowest of the expected ranks that are not in. A worker may have joined
// with a rank above the expected ones, so there can be more of them than
// workers are missing.
std::vector<int32_t> NotJoined(const Waiting& waiting, size_t count) {
  std::vector<int32_t> missing;
  for (int32_t rank = 0; rank < waiting.expected && missing.size() < count;
       ++rank) {
    if (!std::binary_search(waiting.joined.begin(), waiting.joined.end(),
                            rank)) {
      missing.push_back(rank);
    }
  }
  return missing;
}

// "2 of " where not all of them are needed.
std::string QuorumText(const Waiting& waiting) {
  const int32_t num_missing = static_cast<int32_t>(waiting.uncommitted.size());
  const bool all = waiting.num_needed <= 0 || waiting.num_needed >= num_missing;
  return all ? "" : absl::StrCat(waiting.num_needed, " of ");
}

}  // namespace

std::string RanksText(const std::vector<int32_t>& ranks) {
  if (ranks.empty()) return "no rank";
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0]);
  std::string text = "ranks ";
  size_t begin = 0;
  for (int part = 0; part < kMaxParts && begin < ranks.size(); ++part) {
    size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    absl::StrAppend(&text, part == 0 ? "" : ",", ranks[begin]);
    // A run of two is shorter as two numbers.
    if (end - begin == 2) absl::StrAppend(&text, ",", ranks[end - 1]);
    if (end - begin > 2) absl::StrAppend(&text, "-", ranks[end - 1]);
    begin = end;
  }
  if (begin < ranks.size()) {
    absl::StrAppend(&text, " and ", ranks.size() - begin, " more");
  }
  return text;
}

std::string WaitingText(const Waiting& waiting, absl::Time now) {
  switch (PhaseOf(waiting)) {
    case kJoins: {
      const size_t missing =
          static_cast<size_t>(waiting.expected) - waiting.joined.size();
      return absl::StrCat(
          missing, " of ", waiting.expected,
          " workers have not joined: ", RanksText(NotJoined(waiting, missing)));
    }
    case kSeed:
      return absl::StrCat("rank ", waiting.seed_rank,
                          " has not seeded the parameters");
    case kFloor:
      return absl::StrCat("round ", waiting.round, " ", waiting.floor);
    case kRows: {
      const absl::Duration waited =
          absl::Trunc(now - waiting.rows_since, absl::Seconds(1));
      return absl::StrCat(
          "round ", waiting.round, " has waited ", absl::FormatDuration(waited),
          " for ", QuorumText(waiting), RanksText(waiting.uncommitted),
          waiting.has_round_timeout ? "" : " (round_timeout is off)");
    }
    case kJoining: {
      const bool one = waiting.joining.size() == 1;
      return absl::StrCat(RanksText(waiting.joining), one ? " has" : " have",
                          " joined during round ", waiting.round, " and ",
                          one ? "waits" : "wait", " for its end; ",
                          RanksText(waiting.uncommitted),
                          waiting.uncommitted.size() == 1 ? " has" : " have",
                          " not committed");
    }
    default:
      return "";
  }
}

WaitingReport::Key WaitingReport::KeyOf(const Waiting& waiting) {
  const Phase phase = PhaseOf(waiting);
  switch (phase) {
    case kJoins:
      return {phase, waiting.joined.size()};
    case kSeed:
      return {phase, static_cast<uint64_t>(waiting.seed_rank)};
    case kFloor:
    case kRows:
    case kJoining:
      return {phase, waiting.round};
    default:
      return {};
  }
}

std::string WaitingReport::Say(const Waiting& waiting, absl::Time now) {
  const Key key = KeyOf(waiting);
  if (!(key == key_)) {
    key_ = key;
    const absl::Duration quiet = key.phase == kRows ? straggler_ : start_;
    next_at_ = key.phase == kNothing || quiet <= absl::ZeroDuration()
                   ? absl::InfiniteFuture()
               : key.phase == kRows ? waiting.rows_since + quiet
                                    : now + quiet;
  }
  if (now < next_at_) return "";
  next_at_ = straggler_ > absl::ZeroDuration() ? now + straggler_
                                               : absl::InfiniteFuture();
  return WaitingText(waiting, now);
}

}  // namespace agg
