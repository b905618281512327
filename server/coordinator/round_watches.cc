// Counts and compares what rounds say, and makes the sentences about it. A
// watch writes to the log when what it sees has changed.
#include "server/coordinator/round_watches.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/line_limits.h"
#include "server/base/log.h"

namespace agg {

namespace {

// "rank 2", "ranks 0, 1, 5 and 30 more".
std::string Ranks(const std::vector<int32_t>& ranks) {
  constexpr size_t kMaxNamed = 16;
  if (ranks.size() <= kMaxNamed) {
    return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                        absl::StrJoin(ranks, ", "));
  }
  const std::vector<int32_t> first(ranks.begin(), ranks.begin() + kMaxNamed);
  return absl::StrCat("ranks ", absl::StrJoin(first, ", "), " and ",
                      ranks.size() - kMaxNamed, " more");
}

bool MostAgree(const ReplicaGroups& replicas) {
  size_t num_ranks = 0;
  for (const auto& group : replicas.groups) num_ranks += group.size();
  return 2 * replicas.groups.front().size() > num_ranks;
}

}  // namespace

std::string ReplicaGroups::Text() const {
  if (!differ()) return "";
  std::string text = "workers' parameters differ: ";
  if (MostAgree(*this)) {
    absl::StrAppend(&text, Ranks(differing), " from those of ",
                    Ranks(groups.front()));
  } else {
    constexpr size_t kMaxGroups = 8;
    std::vector<std::string> parts;
    for (const auto& group : groups) {
      if (parts.size() == kMaxGroups) break;
      parts.push_back(Ranks(group));
    }
    absl::StrAppend(&text, absl::StrJoin(parts, " from those of "));
    if (groups.size() > kMaxGroups) {
      absl::StrAppend(&text, ", and ", groups.size() - kMaxGroups,
                      " more groups");
    }
    absl::StrAppend(&text, " (no majority says who is right)");
  }
  return absl::StrCat(text,
                      "; load the same checkpoint on all of them, with their "
                      "optimizers' states");
}

ReplicaGroups GroupReplicas(const RoundReport& report) {
  std::map<uint32_t, std::vector<int32_t>> by_digest;
  for (const ReportedRow& row : report.rows) {
    if (row.parameters_digest != 0) {
      by_digest[row.parameters_digest].push_back(row.rank);
    }
  }
  ReplicaGroups replicas;
  for (auto& entry : by_digest) {
    std::vector<int32_t>& ranks = entry.second;
    std::sort(ranks.begin(), ranks.end());
    replicas.groups.push_back(std::move(ranks));
  }
  std::sort(replicas.groups.begin(), replicas.groups.end(),
            [](const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
              if (a.size() != b.size()) return a.size() > b.size();
              return a.front() < b.front();
            });
  if (!replicas.differ()) return replicas;
  for (size_t i = MostAgree(replicas) ? 1 : 0; i < replicas.groups.size();
       ++i) {
    replicas.differing.insert(replicas.differing.end(),
                              replicas.groups[i].begin(),
                              replicas.groups[i].end());
  }
  std::sort(replicas.differing.begin(), replicas.differing.end());
  return replicas;
}

void ReplicaWatch::Note(uint64_t round, const ReplicaGroups& replicas) {
  if (replicas.differ()) {
    const bool is_new = replicas.differing != differing_;
    differing_ = replicas.differing;
    text_ = replicas.Text();
    last_round_ = round;
    if (is_new) LogWarningOf("replicas", "round ", round, ": ", text_);
  } else if (!differing_.empty() && round - last_round_ >= kQuietRounds) {
    differing_.clear();
    LogInfo("round ", round, ": no worker's parameters have differed for ",
            kQuietRounds, " rounds");
  }
}

std::string ReplicaWatch::Text() const {
  if (differing_.empty()) return "";
  return absl::StrCat("in round ", last_round_, " ", text_);
}

std::string ReplicaWatch::FailureText() const {
  if (!fails_ || differing_.empty()) return "";
  return absl::StrCat("it failed: ", Text(), " (on_divergence)");
}

namespace {

// "1 of at least 2 workers (min_workers)". The words are in one place, so that
// the log, the status and the error of a worker's call say the same.
std::string Count(int32_t num_in, const CloseOptions& options) {
  return absl::StrCat(num_in, " of at least ", options.min_workers,
                      " workers (min_workers)");
}

}  // namespace

void FloorWatch::Note(const CloseSnapshot& snapshot, absl::Time now) {
  const bool was_below = below();
  const int32_t former = num_in_;
  num_in_ = snapshot.num_in;
  if (!IsBelowFloor(options_, snapshot)) {
    below_since_ = absl::InfiniteFuture();
    if (was_below && !snapshot.all_left) {
      LogInfo(num_in_, " workers are in, as min_workers (",
              options_.min_workers, ") asks: the job goes on");
    }
    return;
  }
  if (!was_below) below_since_ = now;
  if (!was_below || num_in_ != former) {
    LogWarningOf("floor", "the job ", Text());
  }
}

std::string FloorWatch::Text() const {
  if (!below()) return "";
  const std::string count = Count(num_in_, options_);
  switch (options_.floor_policy) {
    case FloorPolicy::kWait:
      return absl::StrCat("waits: ", count,
                          "; no round closes until more have joined");
    case FloorPolicy::kWarn:
      return absl::StrCat("goes on with ", count);
    case FloorPolicy::kFail:
      return absl::StrCat(
          "waits: ", count, "; unless more join it ends at ",
          absl::FormatTime("%H:%M:%S", below_since_ + options_.floor_timeout,
                           absl::UTCTimeZone()),
          " UTC");
  }
  return count;
}

std::string FloorWatch::FailureText() const {
  AGG_DCHECK(below());
  return absl::StrCat(
      "it failed: for ", absl::FormatDuration(options_.floor_timeout),
      " (floor_timeout_seconds) there were only ", Count(num_in_, options_));
}

namespace {

// A shard's failure, too, skips rounds: its message says what to do.
constexpr const char* kAdvice =
    "; if the parameters are no longer finite, they stay so: seed the job "
    "anew, with a smaller learning rate if it diverged";
constexpr const char* kNotFiniteAdvice =
    "; they stay so: seed the job anew, with a smaller learning rate if it "
    "diverged";

bool IsPowerOfTen(uint64_t number) {
  while (number >= 10 && number % 10 == 0) number /= 10;
  return number == 1;
}

}  // namespace

void SkippedRun::Note(const RoundReport& report) {
  if (report.rows.empty()) return;
  if (report.applied && !report.not_finite.has_value()) {
    not_finite_.reset();
    num_after_ = 0;
  } else if (not_finite_.has_value()) {
    ++num_after_;
  } else if (report.not_finite.has_value()) {
    not_finite_ = report.not_finite;
    not_finite_since_ = report.round;
  }
  length_ = report.applied ? 0 : length_ + 1;
  if (!report.applied) last_reason_ = report.message;
}

bool SkippedRun::worth_a_line() const {
  const uint64_t length = std::max(length_, num_after_);
  return length == 0 || IsPowerOfTen(length);
}

std::string SkippedRun::NotFiniteText() const {
  if (!not_finite_.has_value()) return "";
  return absl::StrCat("the parameters have not been finite since round ",
                      not_finite_since_, " (tensor ",
                      Quoted(not_finite_->tensor), ", shard ",
                      not_finite_->shard, ")");
}

std::string SkippedRun::Text() const {
  std::string skipped;
  if (length_ >= 2) {
    skipped = absl::StrCat("the last ", length_, " rounds were skipped (",
                           last_reason_, ")");
  }
  if (!not_finite_.has_value()) {
    return skipped.empty() ? "" : absl::StrCat(skipped, kAdvice);
  }
  return absl::StrCat(NotFiniteText(), kNotFiniteAdvice,
                      skipped.empty() ? "" : "; ", skipped);
}

std::string SkippedRun::FailureText() const {
  if (max_rounds_ == 0) return "";
  if (not_finite_.has_value() && num_after_ >= max_rounds_) {
    return absl::StrCat("it failed: ", NotFiniteText(), ", and ", num_after_,
                        " rounds came after it (max_skipped_rounds)",
                        kNotFiniteAdvice);
  }
  if (length_ < max_rounds_) return "";
  return absl::StrCat("it failed: ", length_,
                      " rounds in a row were skipped (max_skipped_rounds); the "
                      "last one: ",
                      last_reason_, kAdvice);
}

namespace {

// Whether outliers, too few rows to judge them or for Krum, an external rule's
// fallback, sums that are not used, or what narrowing loses are all there is to
// say. Skipped rounds have their own count, SkippedRun.
bool IsUsual(const RoundReport& report) {
  const Decision& decision = report.decision;
  const OutlierReport& outliers = decision.outliers;
  const size_t num_excluded = outliers.excluded ? outliers.rows.size() : 0;
  return report.applied &&
         (outliers.too_few_rows || !outliers.rows.empty() ||
          decision.short_of_rows || report.narrowed.worth_saying() ||
          !decision.external_fallback.empty() ||
          !decision.small_sum_ranks.empty() ||
          !decision.unused_sum_ranks.empty()) &&
         !report.says_equal_rows && !report.not_finite.has_value() &&
         decision.excluded_ranks.size() == num_excluded &&
         !decision.compensated && !decision.adacons_fallback;
}

}  // namespace

RoundLine LineOf(const RoundReport& report, const SkippedRun& run) {
  if (report.message.empty() || !run.worth_a_line()) return {};
  RoundLine line = {report.message, "a usual round"};
  if (run.length() > 1) {
    absl::StrAppend(&line.text, "; ", run.length(),
                    " rounds in a row were skipped");
  }
  if (!IsUsual(report)) {
    line.reason = absl::StrCat("a round ", run.length(),
                               Ranks(report.decision.excluded_ranks), " ",
                               WithoutNumbers(report.message));
  }
  return line;
}

bool EqualRowsRun::Note(const RoundReport& report) {
  if (!report.applied) return false;
  const std::vector<std::vector<int32_t>>& ranks = report.decision.equal_ranks;
  length_ = ranks == ranks_ ? length_ + 1 : 1;
  ranks_ = ranks;
  if (ranks.empty() || length_ < kEqualRowsRounds || ranks == said_) {
    return false;
  }
  said_ = ranks;
  return true;
}

namespace {

// Of a list of ranks: enough to know where to look, few enough for a line.
constexpr int kMaxParts = 10;

enum WaitKind : int { kNothing, kJoins, kSeed, kFloor, kRows, kJoining };

WaitKind PhaseOf(const Waiting& waiting) {
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

// Says what is waited for, by the first that applies: workers to join, the
// seed, more workers than the floor has, rows.
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

// What is waited for, as far as a text is said anew when it changes.
WaitingReport::Key WaitingReport::KeyOf(const Waiting& waiting) {
  const WaitKind phase = PhaseOf(waiting);
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
