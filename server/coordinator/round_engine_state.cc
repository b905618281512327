// What a RoundEngine keeps between rounds: for a new epoch, for the record, and
// the seed.
#include <memory>
#include <utility>

#include "server/coordinator/round_engine.h"
#include "server/coordinator/rule_change.h"

namespace agg {

absl::Status RoundEngine::Reset(uint64_t epoch, const Manifest& manifest) {
  absl::StatusOr<ShardPlan> plan = MakeShardPlan(manifest, peers_->size());
  if (!plan.ok()) return plan.status();
  epoch_ = epoch;
  round_ = 0;
  manifest_ = manifest;
  plan_ = *std::move(plan);
  waves_ = MakeWaves(manifest);
  tensors_of_shard_.assign(plan_.slices_of_shard.size(), {});
  for (size_t shard = 0; shard < plan_.slices_of_shard.size(); ++shard) {
    std::vector<int32_t>& tensors = tensors_of_shard_[shard];
    for (const int32_t slice : plan_.slices_of_shard[shard]) {
      const int32_t tensor = plan_.slices[slice].tensor;
      if (tensors.empty() || tensors.back() != tensor) {
        tensors.push_back(tensor);
      }
    }
  }
  num_steps_ = 0;
  state_ = CombineState();
  rule_before_.clear();
  input_ = CompactedRound();
  unpublished_.reset();
  next_record_ = nullptr;
  return absl::OkStatus();
}

void RoundEngine::BeginEpoch(uint64_t epoch) {
  epoch_ = epoch;
  unpublished_.reset();
}

void RoundEngine::Restore(const JobRecord& record, const CombineOptions& now) {
  num_steps_ = record.num_steps;
  combine_ = now;
  state_ = StateToGoOnWith(record, now, manifest_.tensors.size());
}

void RoundEngine::FillRecord(JobRecord* record) const {
  record->num_steps = num_steps_;
  record->rule = combine_.rule;
  record->shadow_rules = combine_.shadow_rules;
  record->state = state_;
}

void RoundEngine::Advance(RoundReport* report) {
  if (report->applied) ++num_steps_;
  rule_before_ = std::move(state_.rule);
  state_ = std::exchange(report->decision.next_state, CombineState());
}

std::optional<RoundReport> RoundEngine::TakeUnpublished() {
  std::optional<RoundReport> report = std::exchange(unpublished_, std::nullopt);
  if (report.has_value()) Advance(&*report);
  return report;
}

void RoundEngine::SetNextRecord(const RoundReport& report) {
  next_record_ = nullptr;
  if (!options_.replicated || make_record_ == nullptr) return;
  JobRecord record;
  FillRecord(&record);
  if (report.applied) ++record.num_steps;
  record.state = report.decision.next_state;
  next_record_ = std::make_shared<const std::string>(
      make_record_(report, std::move(record)));
}

void RoundEngine::SetCombination(const CombineOptions& combine) {
  CarryState(combine_, combine, &state_);
  combine_ = combine;
}

absl::Status RoundEngine::PublishSeed(uint64_t session, uint32_t attempt) {
  PublishPlan plan;
  plan.seed = true;
  plan.seed_session = session;
  plan.seed_attempt = attempt;
  if (options_.replicated) {
    // Nobody sees the seed before both copies of every part have it.
    RoundReport seeded;
    seeded.epoch = epoch_;
    SetNextRecord(seeded);
    const absl::Status loaded = RunEach(
                                    PhaseKind::kLoadSeed,
                                    [&](int ordinal) {
                                      Phase phase =
                                          MakePhase(PhaseKind::kLoadSeed);
                                      phase.publish = plan;
                                      if (ordinal == 0)
                                        phase.record = next_record_;
                                      return phase;
                                    },
                                    nullptr)
                                    .status();
    if (!loaded.ok()) return loaded;
    Phase fetch = MakePhase(PhaseKind::kFetch);
    fetch.id = {epoch_, 0};
    const absl::Status fetched = RunOnAll(fetch).status();
    if (!fetched.ok()) return fetched;
  }
  return Publish(plan, nullptr);
}

}  // namespace agg
