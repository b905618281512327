// The seed and the rounds: when they are due and what they come to.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator_impl.h"

namespace agg {
namespace {

RoundResult OutcomeOf(const RoundReport& report) {
  const Decision& decision = report.decision;
  RoundResult outcome;
  outcome.epoch = report.epoch;
  outcome.round = report.round;
  outcome.version = report.version;
  outcome.kind = report.applied ? OutcomeKind::kApplied : OutcomeKind::kSkipped;
  outcome.excluded_ranks = decision.excluded_ranks;
  for (const RowInfo& row : report.rows) {
    if (report.applied &&
        std::count(decision.excluded_ranks.begin(),
                   decision.excluded_ranks.end(), row.rank) == 0) {
      outcome.ranks.push_back(row.rank);
    }
  }
  outcome.learning_rate = decision.learning_rate;
  outcome.gain = decision.gain;
  outcome.tau = decision.tau;
  outcome.orthogonality = decision.orthogonality;
  outcome.finished = decision.finished;
  outcome.message = report.message;
  outcome.loss = report.loss;
  outcome.combined_norm = decision.combined_norm;
  outcome.combination = report.combination;
  return outcome;
}

// In rank order, as RoundReport::rows.
std::vector<absl::Duration> CommitDelays(
    const std::map<int32_t, Contribution>& contributions) {
  absl::Time first = absl::InfiniteFuture();
  for (const auto& [rank, contribution] : contributions) {
    first = std::min(first, contribution.committed_at);
  }
  std::vector<absl::Duration> delays;
  for (const auto& [rank, contribution] : contributions) {
    delays.push_back(contribution.committed_at - first);
  }
  return delays;
}

// Ranks that are in excluded_ranks for no other reason than their values.
std::vector<int32_t> NonFiniteRanks(const RoundReport& report) {
  std::vector<int32_t> ranks = report.decision.excluded_ranks;
  for (const IncompleteRow& row : report.incomplete_rows) {
    ranks.erase(std::remove(ranks.begin(), ranks.end(), row.rank), ranks.end());
  }
  return ranks;
}

constexpr size_t kMaxNamedRows = 8;

std::string DescribeIncomplete(const std::vector<IncompleteRow>& rows) {
  std::vector<std::string> names;
  for (size_t i = 0; i < rows.size() && i < kMaxNamedRows; ++i) {
    names.push_back(
        absl::StrCat("rank ", rows[i].rank, " (shard ", rows[i].shard, ")"));
  }
  if (rows.size() > kMaxNamedRows) {
    names.push_back(absl::StrCat(rows.size() - kMaxNamedRows, " more"));
  }
  return absl::StrCat("excluded, committed but not completely pushed: ",
                      absl::StrJoin(names, ", "));
}

// What was done other than plainly applying the rule.
std::string Remarks(const RoundReport& report) {
  const Decision& decision = report.decision;
  std::vector<std::string> remarks;
  if (!report.incomplete_rows.empty()) {
    remarks.push_back(DescribeIncomplete(report.incomplete_rows));
  }
  const std::vector<int32_t> non_finite = NonFiniteRanks(report);
  if (!non_finite.empty()) {
    remarks.push_back(absl::StrCat("excluded non-finite rows of ranks ",
                                   absl::StrJoin(non_finite, ",")));
  }
  if (decision.compensated) remarks.push_back("used compensated Grams");
  if (decision.adacons_fallback) {
    remarks.push_back("the AdaCons guard fell back to the mean");
  }
  return absl::StrJoin(remarks, "; ");
}

}  // namespace

bool Coordinator::Impl::SeedIfDue() {
  uint64_t epoch;
  uint64_t session;
  {
    MutexLock lock(&mutex_);
    if (!Gate().ok() || !state_->seed_committed().has_value()) return false;
    epoch = state_->epoch();
    session = *state_->seed_committed();
  }
  absl::Status status = engine_.PublishSeed(session);
  if (!status.ok()) {
    LoseEpoch(epoch, status);
    return true;
  }
  {
    MutexLock lock(&mutex_);
    if (!Gate(epoch).ok()) return true;
    state_->FinishSeed(clock_->Now());
    LogInfo("seeded: version 0 is published, epoch ", epoch);
  }
  DeliverEffects();
  return true;
}

void Coordinator::Impl::WarnOfStragglers(absl::Time now) {
  if (options_.straggler_warning <= absl::ZeroDuration() ||
      warned_round_ == state_->version() ||
      now < state_->waiting_since() + options_.straggler_warning) {
    return;
  }
  warned_round_ = state_->version();
  LogWarning("round ", state_->version(), " waits since ",
             absl::FormatDuration(now - state_->waiting_since()), " for ranks ",
             absl::StrJoin(state_->MissingRanks(), ","),
             options_.round_timeout > absl::ZeroDuration()
                 ? ""
                 : " (round_timeout is off)");
}

bool Coordinator::Impl::RoundIfDue() {
  std::map<int32_t, Contribution> contributions;
  uint64_t epoch;
  uint64_t round;
  absl::Duration waited;
  {
    MutexLock lock(&mutex_);
    if (!Gate().ok() || !state_->seeded() || state_->finished()) return false;
    const absl::Time now = clock_->Now();
    const CloseSnapshot snapshot = state_->close_snapshot();
    const CloseDecision decision = DecideClose(close_options_, snapshot, now);
    if (decision.start) state_->Start(now);
    if (!decision.close) {
      if (snapshot.num_contributions > 0) WarnOfStragglers(now);
      return false;
    }
    state_->BeginClosing();
    in_round_ = true;
    contributions = state_->contributions();
    epoch = state_->epoch();
    round = state_->version();
    waited = now - snapshot.opened_at;
    engine_.SetCombination(combine_);
  }
  RunRound(epoch, round, contributions, waited);
  return true;
}

void Coordinator::Impl::RunRound(
    uint64_t epoch, uint64_t round,
    const std::map<int32_t, Contribution>& contributions,
    absl::Duration waited) {
  absl::StatusOr<RoundReport> report = engine_.Run(round, contributions);
  if (!report.ok()) LoseEpoch(epoch, report.status());
  {
    MutexLock lock(&mutex_);
    in_round_ = false;
    changed_.NotifyAll();
    if (!report.ok() || !epoch_on_ || state_->epoch() != epoch) return;
    const std::string remarks = Remarks(*report);
    if (!remarks.empty()) {
      absl::StrAppend(&report->message, report->message.empty() ? "" : "; ",
                      remarks);
    }
    report->durations.wait = waited;
    report->commit_delays = CommitDelays(contributions);
    report->finished_at = clock_->Now();
    for (const auto& [rank, contribution] : contributions) {
      report->traceparents.push_back(contribution.traceparent);
    }
    RoundResult outcome = OutcomeOf(*report);
    state_->FinishRound(outcome, clock_->Now());
    OpenCombination();
    outcome.finished = state_->finished();
    last_outcome_ = outcome;
    Record(*report, outcome);
    if (!report->message.empty()) {
      LogWarning("round ", round, ": ", report->message);
    }
  }
  DeliverEffects();
  engine_.AddStatistics(&*report);
  if (on_report_ != nullptr) on_report_(*report);
}

}  // namespace agg
