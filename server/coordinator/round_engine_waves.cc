// A round that is published wave by wave (P43): close -> gram -> [compensated
// gram] -> coefficients -> update for each wave, then publish. Each tensor is
// decided about by itself, so that its bits are those of an atomic round.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/base/log.h"
#include "server/combine/gram_matrix.h"
#include "server/coordinator/orthogonality_task.h"
#include "server/coordinator/round_engine.h"

namespace agg {

void RoundEngine::BeginWaves(
    uint64_t round, const std::map<int32_t, Contribution>& contributions) {
  unpublished_.reset();
  waved_.emplace(
      Waves{Begin(round, contributions), WavedRound(contributions.size()), {}});
  waved_->report.loss = MeanLoss(contributions, {});
  next_record_ = nullptr;
}

// --- A wave's rows and Grams -------------------------------------------------

Phase RoundEngine::WavePhase(PhaseKind kind, int wave) const {
  Phase phase = MakePhase(kind);
  phase.wave = wave + 1;
  return phase;
}

std::vector<int32_t> RoundEngine::TensorsOf(int wave) const {
  std::vector<int32_t> tensors;
  for (int32_t t = waves_[wave].begin; t < waves_[wave].end; ++t) {
    tensors.push_back(t);
  }
  return tensors;
}

absl::StatusOr<std::vector<GramMatrix>> RoundEngine::CloseWave(
    int wave, const std::vector<int32_t>& ranks) {
  RoundReport* const report = &waved_->report;
  closed_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const int32_t rank = rows_[i].rank;
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end() &&
        waved_->dropped.count(rank) == 0) {
      closed_.push_back(static_cast<int>(i));
    }
  }
  const std::vector<int32_t> tensors = TensorsOf(wave);
  for (;;) {
    Phase close = WavePhase(PhaseKind::kClose, wave);
    for (const int row : closed_) close.rows.push_back(rows_[row]);
    GramSums sums(plan_, tensors, static_cast<int>(closed_.size()),
                  /*compensated=*/false);
    absl::StatusOr<std::vector<PhaseResult>> results = RunOnAll(close, &sums);
    if (!results.ok()) return results.status();
    // A row that a shard lacks slices of, though all were told to be there, is
    // out from here on.
    if (!DropIncomplete(*results, report)) {
      if (closed_.empty()) return std::vector<GramMatrix>(tensors.size());
      return sums.Take();
    }
    for (const IncompleteRow& row : report->incomplete_rows) {
      waved_->dropped.insert(row.rank);
    }
    const absl::Status status =
        RunOnAll(WavePhase(PhaseKind::kAbandon, wave)).status();
    if (!status.ok()) return status;
  }
}

// --- Deciding ----------------------------------------------------------------

Decision RoundEngine::DecideTensor(const GramMatrix& gram) const {
  if (closed_.empty()) return SkipDecision("no row has it");
  return DecideCoefficients(combine_, state_, static_cast<int64_t>(round_),
                            CompactRound(row_infos_, closed_, {gram}));
}

absl::StatusOr<std::vector<Decision>> RoundEngine::DecideWave(
    int wave, std::vector<GramMatrix>* grams) {
  std::vector<Decision> decisions;
  Phase again = WavePhase(PhaseKind::kCompensatedGram, wave);
  for (size_t i = 0; i < grams->size(); ++i) {
    decisions.push_back(DecideTensor((*grams)[i]));
    if (decisions.back().kind == DecisionKind::kNeedsCompensated) {
      again.tensors.push_back(waves_[wave].begin + static_cast<int32_t>(i));
    }
  }
  if (again.tensors.empty()) return decisions;
  GramSums sums(plan_, again.tensors, static_cast<int>(closed_.size()),
                /*compensated=*/true);
  const absl::Status status = RunOnAll(again, &sums).status();
  if (!status.ok()) return status;
  absl::StatusOr<std::vector<GramMatrix>> exact = sums.Take();
  if (!exact.ok()) return exact.status();
  for (size_t i = 0; i < exact->size(); ++i) {
    const int32_t place = again.tensors[i] - waves_[wave].begin;
    (*grams)[place] = std::move((*exact)[i]);
    decisions[place] = DecideTensor((*grams)[place]);
    if (decisions[place].kind == DecisionKind::kNeedsCompensated) {
      return absl::InternalError("compensated Grams were asked for twice");
    }
  }
  return decisions;
}

// --- Stepping ----------------------------------------------------------------

std::vector<int> RoundEngine::UsedRows(const Decision& decision) const {
  std::vector<int> used;
  if (decision.kind != DecisionKind::kApply) return used;
  for (const int row : closed_) {
    const std::vector<int32_t>& excluded = decision.excluded_ranks;
    if (std::find(excluded.begin(), excluded.end(), rows_[row].rank) ==
        excluded.end()) {
      used.push_back(row);
    }
  }
  return used;
}

Phase RoundEngine::WaveUpdate(int wave, const std::vector<Decision>& decisions,
                              int ordinal) const {
  Phase phase = WavePhase(PhaseKind::kUpdate, wave);
  FillScalars(decisions.front(), &phase.step);
  phase.step.per_tensor = true;
  phase.step.excluded_ranks.clear();  // NaN says it, tensor by tensor
  for (const int32_t tensor : tensors_of_shard_[ordinal]) {
    if (tensor < waves_[wave].begin || tensor >= waves_[wave].end) continue;
    phase.step.tensors.push_back(tensor);
    const Decision& decision = decisions[tensor - waves_[wave].begin];
    const std::vector<int> used = UsedRows(decision);
    for (const int row : closed_) {
      const bool is_used = std::binary_search(used.begin(), used.end(), row);
      phase.step.coefficients.push_back(
          is_used ? decision.coefficients[0][row]
                  : std::numeric_limits<double>::quiet_NaN());
    }
  }
  return phase;
}

absl::Status RoundEngine::RunWave(int wave, const std::vector<int32_t>& ranks) {
  RoundReport* const report = &waved_->report;
  absl::Time mark = absl::Now();
  absl::StatusOr<std::vector<GramMatrix>> grams = CloseWave(wave, ranks);
  Lap(&mark, &report->durations.gram);
  if (!grams.ok()) return grams.status();
  const absl::StatusOr<std::vector<Decision>> decisions =
      DecideWave(wave, &*grams);
  Lap(&mark, &report->durations.decide);
  if (!decisions.ok()) return decisions.status();
  const absl::StatusOr<std::vector<PhaseResult>> results = RunEach(
      PhaseKind::kUpdate,
      [&](int ordinal) { return WaveUpdate(wave, *decisions, ordinal); },
      nullptr);
  Lap(&mark, &report->durations.update);
  if (!results.ok()) return results.status();
  if (!report->not_finite.has_value()) NoteNotFinite(*results, report);
  NoteNarrowing(*results, report);
  for (size_t i = 0; i < decisions->size(); ++i) {
    const Decision& decision = (*decisions)[i];
    waved_->tensors.Add(closed_, UsedRows(decision), std::move((*grams)[i]),
                        decision.skip_reason);
  }
  return absl::OkStatus();
}

// --- The end -----------------------------------------------------------------

void RoundEngine::DescribeWaves(RoundReport* report) {
  const WavedRound& tensors = waved_->tensors;
  report->applied = tensors.num_unchanged() < tensors.num_tensors();
  report->partial_rows = tensors.PartialRows(row_infos_);
  if (!report->applied) {
    report->message = tensors.why_unchanged();
  } else if (tensors.num_unchanged() > 0) {
    report->message =
        absl::StrCat(tensors.num_unchanged(), " of ", tensors.num_tensors(),
                     " tensors are as they were: ", tensors.why_unchanged());
  }
  // Of the rows that every tensor has. What needed compensated Grams has them.
  input_ = waved_->tensors.TakeWhole(row_infos_);
  CombineOptions exact = combine_;
  exact.rule.kappa_limit = std::numeric_limits<double>::infinity();
  report->decision =
      DecideCoefficients(exact, state_, static_cast<int64_t>(round_), input_);
  if (report->applied) report->decision.skip_reason.clear();
}

absl::StatusOr<RoundReport> RoundEngine::FinishWaves() {
  RoundReport report = std::move(waved_->report);
  DescribeWaves(&report);
  waved_.reset();
  const absl::Status status = PublishRound(&report);
  OrthogonalityTask(combine_.rule, input_, report.decision)
      .Finish(&report.decision);
  if (!status.ok()) {
    unpublished_.emplace(std::move(report));
    return status;
  }
  Advance(&report);
  report.shard_seconds = shard_seconds_;
  return report;
}

}  // namespace agg
