#include "server/coordinator/round_engine.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/backend.h"
#include "server/base/log.h"
#include "server/combine/statistics.h"
#include "server/coordinator/rule_change.h"
#include "server/coordinator/trust_ratio.h"

namespace agg {
namespace {

bool AnyOf(const std::vector<IncompleteRow>& rows, int32_t rank) {
  return std::any_of(
      rows.begin(), rows.end(),
      [rank](const IncompleteRow& row) { return row.rank == rank; });
}

// Mean over the complete rows that sent a finite loss, weighted by their
// examples.
double MeanLoss(const std::map<int32_t, Contribution>& contributions,
                const std::vector<IncompleteRow>& incomplete) {
  double sum = 0.0;
  double examples = 0.0;
  for (const auto& [rank, contribution] : contributions) {
    if (!contribution.loss.has_value() || !std::isfinite(*contribution.loss) ||
        AnyOf(incomplete, rank)) {
      continue;
    }
    const double weight = static_cast<double>(contribution.row.examples);
    sum += weight * *contribution.loss;
    examples += weight;
  }
  return examples > 0.0 ? sum / examples
                        : std::numeric_limits<double>::quiet_NaN();
}

// Adds the time since *mark to *duration and moves the mark.
void Lap(absl::Time* mark, absl::Duration* duration) {
  const absl::Time now = absl::Now();
  *duration += now - *mark;
  *mark = now;
}

}  // namespace

absl::Status RoundEngine::Reset(uint64_t epoch, const Manifest& manifest) {
  absl::StatusOr<ShardPlan> plan = MakeShardPlan(manifest, peers_->size());
  if (!plan.ok()) return plan.status();
  epoch_ = epoch;
  round_ = 0;
  manifest_ = manifest;
  plan_ = *std::move(plan);
  num_steps_ = 0;
  state_ = CombineState();
  previous_state_ = CombineState();
  input_ = RoundInput();
  return absl::OkStatus();
}

void RoundEngine::SetCombination(const CombineOptions& combine) {
  CarryState(combine_, combine, &state_);
  combine_ = combine;
}

Phase RoundEngine::MakePhase(PhaseKind kind) const {
  Phase phase;
  phase.kind = kind;
  phase.epoch = epoch_;
  phase.round = round_;
  return phase;
}

absl::StatusOr<std::vector<PhaseResult>> RoundEngine::RunOnAll(
    const Phase& phase) {
  std::vector<PhaseResult> results(peers_->size());
  absl::Status status =
      peers_->ForEach([&](int ordinal, ShardPeer* peer) -> absl::Status {
        absl::StatusOr<PhaseResult> result = peer->RunPhase(phase);
        if (!result.ok()) return result.status();
        results[ordinal] = *std::move(result);
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  shard_seconds_.resize(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    shard_seconds_[i].Add(phase.kind, results[i].seconds);
  }
  return results;
}

absl::Status RoundEngine::Publish(const PublishPlan& plan) {
  Phase phase = MakePhase(PhaseKind::kPublish);
  phase.publish = plan;
  return RunOnAll(phase).status();
}

absl::Status RoundEngine::PublishSeed(uint64_t session) {
  PublishPlan plan;
  plan.seed = true;
  plan.seed_session = session;
  return Publish(plan);
}

absl::Status RoundEngine::Decide(RoundReport* report) {
  absl::Time mark = absl::Now();
  absl::Status status = Close(report);
  Lap(&mark, &report->durations.gram);
  if (!status.ok()) return status;
  report->decision = agg::Decide(combine_, state_, input_);
  Lap(&mark, &report->durations.decide);
  if (closed_.empty()) {
    report->decision.skip_reason = "no row is complete on all shards";
  }
  if (report->decision.kind != DecisionKind::kNeedsCompensated) {
    return absl::OkStatus();
  }
  Phase compensated = MakePhase(PhaseKind::kCompensatedGram);
  compensated.tensors.assign(report->decision.compensate_tensors.begin(),
                             report->decision.compensate_tensors.end());
  status = CollectGrams(compensated);
  Lap(&mark, &report->durations.compensated);
  if (!status.ok()) return status;
  report->decision = agg::Decide(combine_, state_, input_);
  Lap(&mark, &report->durations.decide);
  if (report->decision.kind == DecisionKind::kNeedsCompensated) {
    return absl::InternalError("compensated Grams were asked for twice");
  }
  return absl::OkStatus();
}

double RoundEngine::WeightDecayOf(int32_t tensor) const {
  const std::string& group = manifest_.tensors[tensor].group;
  for (const auto& [name, weight_decay] : options_.group_weight_decay) {
    if (name == group) return static_cast<double>(weight_decay);
  }
  return static_cast<double>(options_.weight_decay);
}

absl::Status RoundEngine::CollectTrust(StepPlan* step) {
  Phase phase = MakePhase(PhaseKind::kNorms);
  phase.step = *step;
  absl::StatusOr<std::vector<PhaseResult>> results = RunOnAll(phase);
  if (!results.ok()) return results.status();
  std::vector<SliceNorms> by_slice(plan_.slices.size(), {-1, 0.0, 0.0});
  for (const PhaseResult& result : *results) {
    for (const SliceNorms& norms : result.norms) {
      if (norms.slice >= 0 &&
          norms.slice < static_cast<int32_t>(by_slice.size())) {
        by_slice[norms.slice] = norms;
      }
    }
  }
  for (size_t t = 0; t < manifest_.tensors.size(); ++t) {
    TensorNorms sum;
    for (int32_t slice : plan_.slices_of_tensor[t]) {
      if (by_slice[slice].slice != slice) {
        return absl::InternalError(
            absl::StrCat("the norms of slice ", slice, ", shard ",
                         plan_.slices[slice].shard, ", are missing"));
      }
      sum.parameter_norm_squared += by_slice[slice].parameter_norm_squared;
      sum.update_norm_squared += by_slice[slice].update_norm_squared;
    }
    step->trust.push_back(TrustRatio(
        options_.optimizer, WeightDecayOf(static_cast<int32_t>(t)), sum));
  }
  return absl::OkStatus();
}

absl::Status RoundEngine::Step(RoundReport* report) {
  const Decision& decision = report->decision;
  StepPlan step;
  step.per_tensor = decision.per_tensor;
  for (const std::vector<double>& segment : decision.coefficients) {
    for (const int row : closed_) step.coefficients.push_back(segment[row]);
  }
  step.excluded_ranks = decision.excluded_ranks;
  step.learning_rate = decision.learning_rate;
  step.step = num_steps_ + 1;
  absl::Time mark = absl::Now();
  if (OptimizerNeedsNorms(options_.optimizer.kind)) {
    absl::Status status = CollectTrust(&step);
    Lap(&mark, &report->durations.norms);
    if (!status.ok()) return status;
  }
  Phase phase = MakePhase(PhaseKind::kUpdate);
  phase.step = std::move(step);
  absl::Status status = RunOnAll(phase).status();
  Lap(&mark, &report->durations.update);
  if (status.ok()) ++num_steps_;
  return status;
}

Decision RoundEngine::SkipDecision(const std::string& reason) const {
  RoundInput nothing;
  nothing.version = input_.version;
  nothing.tensors.assign(manifest_.tensors.size(), GramMatrix(0));
  Decision decision = agg::Decide(combine_, state_, nothing);
  decision.skip_reason = reason;
  return decision;
}

absl::Status RoundEngine::DecideOrSkip(RoundReport* report) {
  if (rows_.empty()) {
    report->decision = SkipDecision("every member left without a commit");
    return absl::OkStatus();
  }
  absl::Status status = Decide(report);
  if (status.ok() || absl::IsUnavailable(status)) return status;
  LogWarning("round ", round_,
             " failed and is tried again: ", status.ToString());
  absl::Status abandoned = RunOnAll(MakePhase(PhaseKind::kAbandon)).status();
  if (!abandoned.ok()) return abandoned;
  status = Decide(report);
  if (status.ok() || absl::IsUnavailable(status)) return status;
  report->decision = SkipDecision(
      absl::StrCat("failed twice before coefficients: ", status.ToString()));
  for (const IncompleteRow& row : report->incomplete_rows) {
    report->decision.excluded_ranks.push_back(row.rank);
  }
  return absl::OkStatus();
}

absl::StatusOr<RoundReport> RoundEngine::Run(
    uint64_t round, const std::map<int32_t, Contribution>& contributions) {
  round_ = round;
  shard_seconds_.clear();
  RoundReport report;
  report.epoch = epoch_;
  report.round = round;
  report.version = round + 1;
  report.combination = NamesOf(combine_);
  input_ = RoundInput();
  input_.version = static_cast<int64_t>(round);
  rows_.clear();
  for (const auto& [rank, contribution] : contributions) {
    rows_.push_back({rank, contribution.session});
    input_.rows.push_back(contribution.row);
  }
  report.rows = input_.rows;
  // Until Grams have come; what a failed round's statistics are made of.
  input_.tensors.assign(manifest_.tensors.size(),
                        GramMatrix(static_cast<int>(rows_.size())));

  absl::Status status = DecideOrSkip(&report);
  if (!status.ok()) return status;
  report.loss = MeanLoss(contributions, report.incomplete_rows);

  PublishPlan publish;
  publish.version = round + 1;
  if (report.decision.kind == DecisionKind::kApply) {
    status = Step(&report);
    if (!status.ok()) return status;
    report.applied = true;
  } else {
    publish.unchanged = true;
    report.message = report.decision.skip_reason;
  }
  absl::Time mark = absl::Now();
  status = Publish(publish);
  Lap(&mark, &report.durations.publish);
  if (!status.ok()) return status;
  previous_state_ = std::move(state_);
  state_ = std::exchange(report.decision.next_state, CombineState());
  report.shard_seconds = shard_seconds_;
  return report;
}

void RoundEngine::AddStatistics(RoundReport* report) {
  report->statistics = ComputeStatistics(combine_, previous_state_, input_,
                                         report->decision, &state_);
}

}  // namespace agg
