// A round from above: Run is the diagram of the header. The Grams' half is in
// round_engine_grams.cc, the optimizer's step in round_engine_step.cc, what is
// kept between rounds in round_engine_state.cc.
#include "server/coordinator/round_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/log.h"
#include "server/combine/gram_matrix.h"
#include "server/coordinator/orthogonality_task.h"
#include "server/coordinator/rule_change.h"
#include "server/round/shard_peer.h"

namespace agg {
namespace {

bool Contains(const std::vector<IncompleteRow>& rows, int32_t rank) {
  return std::any_of(
      rows.begin(), rows.end(),
      [rank](const IncompleteRow& row) { return row.rank == rank; });
}

// Whether a shard that has only offered the close has to close by this phase.
bool NeedsClose(const Phase& phase) {
  return phase.wave == 0 &&
         (phase.kind == PhaseKind::kCompensatedGram ||
          phase.kind == PhaseKind::kNorms ||
          (phase.kind == PhaseKind::kUpdate && !phase.publish.unchanged));
}

}  // namespace

double RoundEngine::MeanLoss(
    const std::map<int32_t, Contribution>& contributions,
    const std::vector<IncompleteRow>& incomplete) {
  double sum = 0.0;
  double examples = 0.0;
  for (const auto& [rank, contribution] : contributions) {
    const CommitInfo& info = contribution.info;
    if (!info.loss.has_value() || !std::isfinite(*info.loss) ||
        Contains(incomplete, rank)) {
      continue;
    }
    const double weight = static_cast<double>(info.row.examples);
    sum += weight * *info.loss;
    examples += weight;
  }
  return examples > 0.0 ? sum / examples
                        : std::numeric_limits<double>::quiet_NaN();
}

void RoundEngine::Lap(absl::Time* mark, absl::Duration* duration) {
  const absl::Time now = absl::Now();
  *duration += now - *mark;
  *mark = now;
}

RoundFacts RoundEngine::TakeFacts() {
  return {combine_, std::move(rule_before_),
          std::exchange(input_, CompactedRound())};
}

// --- One round ---------------------------------------------------------------

absl::StatusOr<RoundReport> RoundEngine::Run(
    uint64_t round, const std::map<int32_t, Contribution>& contributions,
    CloseOffers offers) {
  unpublished_.reset();
  RoundReport report = Begin(round, contributions);
  offers_ = std::move(offers);
  offers_.resize(static_cast<size_t>(peers_->size()));

  // close -> gram -> [compensated gram] -> coefficients. Nothing has changed on
  // the shards when this fails, so that it can be tried again.
  absl::Status status = DecideOrSkip(&report);
  if (!status.ok()) return status;
  report.loss = MeanLoss(contributions, report.incomplete_rows);
  OrthogonalityTask orthogonality(combine_.rule, input_, report.decision);

  // -> [norms -> trust] -> update. From the first coefficients on, a failure
  // may leave shards with different parameters: the epoch is over (P9).
  report.applied = report.decision.kind == DecisionKind::kApply;
  if (!report.applied) report.message = report.decision.skip_reason;
  SetNextRecord(report);
  bool published = false;
  status =
      report.applied ? Step(&report, &published) : PrepareUnchanged(report);

  // -> publish.
  if (status.ok() && !published) status = PublishRound(&report);

  // The outcome says it.
  absl::Time mark = absl::Now();
  orthogonality.Finish(&report.decision);
  if (!status.ok()) {
    // Shards may have it: then the next epoch begins there.
    unpublished_.emplace(std::move(report));
    return status;
  }
  Lap(&mark, &report.durations.decide);

  // What rules remember moves on only with a version that all shards have. The
  // state before it stays for the statistics.
  Advance(&report);
  report.shard_seconds = shard_seconds_;
  return report;
}

// A skipped round publishes the same parameters under the next number, so that
// every round has a version.
absl::Status RoundEngine::PublishRound(RoundReport* report) {
  PublishPlan publish;
  publish.version = report->version;
  publish.unchanged = !report->applied;
  absl::Time mark = absl::Now();
  const absl::Status status = Publish(publish, report);
  Lap(&mark, &report->durations.publish);
  return status;
}

RoundReport RoundEngine::Begin(
    uint64_t round, const std::map<int32_t, Contribution>& contributions) {
  round_ = round;
  offers_.clear();
  by_offer_.assign(static_cast<size_t>(peers_->size()), false);
  shard_seconds_.clear();
  rows_.clear();
  row_crc32c_.clear();
  row_infos_.clear();
  for (const auto& [rank, contribution] : contributions) {
    rows_.push_back({rank, contribution.session, contribution.attempt});
    row_crc32c_.push_back(contribution.row_crc32c);
    row_infos_.push_back(contribution.info.row);
  }
  // The statistics of a round that fails before Grams have come are made of one
  // tensor of zeros.
  input_ = CompactRound(row_infos_,
                        {GramMatrix(static_cast<int>(row_infos_.size()))});
  RoundReport report;
  report.epoch = epoch_;
  report.round = round;
  report.version = round + 1;
  report.combination = NamesOf(combine_);
  report.rows = row_infos_;
  for (const auto& [rank, contribution] : contributions) {
    report.origins.push_back(
        {contribution.session, contribution.attempt, contribution.row_crc32c});
    report.parameters_digests.push_back(contribution.info.parameters_digest);
    report.absent_tensors.push_back(contribution.info.absent_tensors);
  }
  return report;
}

absl::Status RoundEngine::DecideOrSkip(RoundReport* report) {
  if (rows_.empty()) {
    report->decision = SkipDecision("every member left without a commit");
    return absl::OkStatus();
  }
  absl::Status status = TryDecide(report);
  if (status.ok() || absl::IsUnavailable(status)) return status;
  LogWarning("round ", round_,
             " failed and is tried again: ", status.ToString());
  // The shards open the round again, with the rows that they have.
  absl::Status abandoned = Abandon();
  if (!abandoned.ok()) return abandoned;
  status = TryDecide(report);
  if (status.ok() || absl::IsUnavailable(status)) return status;
  report->decision = SkipDecision(
      absl::StrCat("failed twice before coefficients: ", status.ToString()));
  for (const IncompleteRow& row : report->incomplete_rows) {
    report->decision.excluded_ranks.push_back(row.rank);
  }
  return absl::OkStatus();
}

absl::Status RoundEngine::TryDecide(RoundReport* report) {
  absl::Time mark = absl::Now();
  absl::Status status = Close(report);
  Lap(&mark, &report->durations.gram);
  if (!status.ok()) return status;
  report->decision = DecideCoefficients(combine_, state_,
                                        static_cast<int64_t>(round_), input_);
  Lap(&mark, &report->durations.decide);
  if (closed_.empty()) {
    report->decision.skip_reason = "every committed row is left out";
  }
  if (report->decision.kind != DecisionKind::kNeedsCompensated) {
    return absl::OkStatus();
  }
  // Some tensors' Grams have lost their digits to cancellation. They are made
  // again, and with them everything is decided anew.
  status = Compensate(report->decision.compensate_tensors);
  Lap(&mark, &report->durations.compensated);
  if (!status.ok()) return status;
  report->decision = DecideCoefficients(combine_, state_,
                                        static_cast<int64_t>(round_), input_);
  Lap(&mark, &report->durations.decide);
  if (report->decision.kind == DecisionKind::kNeedsCompensated) {
    return absl::InternalError("compensated Grams were asked for twice");
  }
  return absl::OkStatus();
}

// Decided about no rows, so that what rules remember becomes what it is after
// any skipped round.
Decision RoundEngine::SkipDecision(const std::string& reason) const {
  CompactedRound nothing;
  nothing.num_tensors = manifest_.tensors.size();
  Decision decision = DecideCoefficients(combine_, state_,
                                         static_cast<int64_t>(round_), nothing);
  decision.skip_reason = reason;
  return decision;
}

absl::Status RoundEngine::Publish(const PublishPlan& plan,
                                  RoundReport* report) {
  Phase phase = MakePhase(PhaseKind::kPublish);
  phase.publish = plan;
  const absl::StatusOr<std::vector<PhaseResult>> results = RunOnAll(phase);
  if (!results.ok()) return results.status();
  // With replication it is here that shards step.
  if (report != nullptr && options_.replicated) {
    NoteNotFinite(*results, report);
    NoteNarrowing(*results, report);
  }
  return absl::OkStatus();
}

// --- Phases ------------------------------------------------------------------

Phase RoundEngine::MakePhase(PhaseKind kind) const {
  Phase phase;
  phase.kind = kind;
  phase.epoch = epoch_;
  phase.round = round_;
  return phase;
}

absl::StatusOr<std::vector<PhaseResult>> RoundEngine::RunOnAll(
    const Phase& phase, GramSums* sums) {
  return RunEach(
      phase.kind, [&](int) { return phase; }, sums);
}

absl::StatusOr<std::vector<PhaseResult>> RoundEngine::RunEach(
    PhaseKind kind, const std::function<Phase(int)>& make_phase, GramSums* sums,
    const std::vector<bool>& skipped) {
  std::vector<PhaseResult> results(peers_->size());
  absl::Status status = peers_->ForEach(
      [&](int ordinal, ShardPeer* peer) -> absl::Status {
        Phase phase = make_phase(ordinal);
        const size_t index = static_cast<size_t>(ordinal);
        // Before the first round nothing is offered.
        if (index < by_offer_.size() && by_offer_[index] && NeedsClose(phase)) {
          for (const int row : closed_) phase.rows.push_back(rows_[row]);
        }
        const PhaseWatch::Call call(watch_, ordinal, phase);
        absl::StatusOr<PhaseResult> result =
            peer->StreamPhase(phase, [sums](SliceGram gram) {
              if (sums != nullptr) sums->Add(std::move(gram));
            });
        if (!result.ok()) return result.status();
        results[ordinal] = *std::move(result);
        return absl::OkStatus();
      },
      skipped);
  if (!status.ok()) return status;
  shard_seconds_.resize(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    shard_seconds_[i].Add(kind, results[i].seconds);
  }
  return results;
}

}  // namespace agg
