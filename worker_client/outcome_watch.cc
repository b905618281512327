// Rounds come in their order, but for questions about earlier ones.
#include "worker_client/outcome_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace agg {
namespace {

std::string WithReason(std::string text, const std::string& reason) {
  if (!reason.empty()) absl::StrAppend(&text, ": ", reason);
  return text;
}

}  // namespace

std::vector<std::string> OutcomeWatch::Note(const RoundOutcome& outcome) {
  std::vector<std::string> news;
  if (outcome.kind == RoundOutcome::Kind::kRewound) {
    MutexLock lock(&mutex_);  // those rounds are made once more
    next_round_ = std::min(next_round_, outcome.version);
    return news;
  }
  const bool skipped = outcome.kind == RoundOutcome::Kind::kSkipped;
  if (!skipped && outcome.kind != RoundOutcome::Kind::kApplied) return news;
  MutexLock lock(&mutex_);
  if (outcome.round < next_round_) return news;
  next_round_ = outcome.round + 1;
  ++num_rounds_;
  if (skipped && ++num_skipped_ == 1) {
    news.push_back(
        WithReason(absl::StrCat("round ", outcome.round,
                                " was skipped, and has changed ", "nothing"),
                   outcome.message));
  }
  for (const int rank : outcome.excluded_ranks) {
    ++num_left_out_[rank];
    // A skipped round leaves all out: whose fault it is shows in another one.
    if (skipped || !told_.insert(rank).second) continue;
    news.push_back(
        WithReason(absl::StrCat("round ", outcome.round,
                                " has left out the row of rank ", rank),
                   outcome.message));
  }
  return news;
}

std::string OutcomeWatch::Summary() const {
  MutexLock lock(&mutex_);
  std::string text;
  if (num_skipped_ > 1) {
    text =
        absl::StrCat(num_skipped_, " of ", num_rounds_, " rounds were skipped");
  }
  for (const auto& [rank, count] : num_left_out_) {
    if (count <= 1) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", count, " of ", num_rounds_,
                    " rounds have left out the row of rank ", rank);
  }
  return text;
}

}  // namespace agg
