// What operators ask of a running job: another rule, a worker's end, and a
// look at the last rounds.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator_impl.h"
#include "server/coordinator/rule_change.h"

namespace agg {
namespace {

constexpr size_t kNumRoundRecords = 256;

std::string Describe(const CombinationNames& names) {
  return absl::StrCat("rule ", names.rule, ", scope ", names.scope,
                      ", step scale ", names.step_scale);
}

}  // namespace

// A round that is open has begun as it was, whatever it waits for: workers may
// have set their rows up for it.
absl::StatusOr<RuleChangeResult> Coordinator::Impl::SetRule(
    const RuleChange& change, const CombinationCheck& check) {
  MutexLock lock(&mutex_);
  if (draining_) return Gate();
  if (state_ != nullptr && state_->finished()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the job has finished at version ", state_->version()));
  }
  const CombineOptions& base = next_combine_.value_or(combine_);
  absl::StatusOr<CombineOptions> after = ChangedCombination(base, change);
  if (!after.ok()) return after.status();
  RuleChangeResult result;
  result.before = NamesOf(combine_);
  result.after = NamesOf(*after);
  if (check != nullptr && state_ != nullptr) {
    const absl::Status status = check(result.after, state_->manifest());
    if (!status.ok()) return status;
  }
  next_combine_ = *std::move(after);
  if (epoch_on_ && state_->seeded()) {
    result.first_round = state_->version() + 1;
  } else {
    OpenCombination();  // no round is open
  }
  LogInfo("from round ", result.first_round, " on: ", Describe(result.after),
          ", learning rate ",
          next_combine_.value_or(combine_).schedule.learning_rate);
  return result;
}

void Coordinator::Impl::OpenCombination() {
  if (!next_combine_.has_value()) return;
  combine_ = *std::exchange(next_combine_, std::nullopt);
}

CombinationNames Coordinator::Impl::CombinationOf(uint64_t round) const {
  const bool later = next_combine_.has_value() && round > state_->version();
  return NamesOf(later ? *next_combine_ : combine_);
}

void Coordinator::Impl::Evict(
    int32_t rank, const std::string& reason,
    std::function<void(absl::StatusOr<Eviction>)> done) {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = Gate();
    if (status.ok()) {
      operations_.push_back(
          [this, rank, reason, done] { done(DoEvict(rank, reason)); });
      changed_.NotifyAll();
      return;
    }
  }
  done(status);
}

absl::StatusOr<Eviction> Coordinator::Impl::DoEvict(int32_t rank,
                                                    const std::string& reason) {
  absl::StatusOr<Eviction> eviction = absl::UnknownError("");
  {
    MutexLock lock(&mutex_);
    const absl::Status status = Gate();
    if (!status.ok()) return status;
    eviction = state_->Evict(rank, reason);
  }
  if (!eviction.ok()) return eviction;
  DeliverEffects();
  LogWarning("rank ", rank, " (", eviction->client, ") was evicted: ", reason);
  return eviction;
}

void Coordinator::Impl::Record(const RoundReport& report,
                               const RoundResult& outcome) {
  const PhaseDurations& took = report.durations;
  rounds_.push_back({outcome, clock_->Now(), took.wait,
                     took.gram + took.compensated + took.decide + took.norms +
                         took.update + took.publish});
  if (rounds_.size() > kNumRoundRecords) rounds_.pop_front();
  tensor_orthogonality_.clear();
  for (const SegmentReport& tensor : report.decision.tensors) {
    tensor_orthogonality_.push_back(tensor.orthogonality);
  }
}

std::vector<RoundRecord> Coordinator::Impl::Rounds() const {
  MutexLock lock(&mutex_);
  return {rounds_.begin(), rounds_.end()};
}

std::vector<double> Coordinator::Impl::TensorOrthogonality() const {
  MutexLock lock(&mutex_);
  return tensor_orthogonality_;
}

JobStatus Coordinator::Impl::Status() const {
  MutexLock lock(&mutex_);
  JobStatus status;
  status.message =
      epoch_on_ ? lost_after_end_ : std::string(no_epoch_.message());
  status.combination = NamesOf(combine_);
  status.next_combination = NamesOf(next_combine_.value_or(combine_));
  if (state_ != nullptr) {
    status.epoch = state_->epoch();
    status.version = state_->version();
    status.round = state_->version();
    status.seeded = state_->seeded();
    status.missing_ranks = state_->MissingRanks();
    const absl::Time now = clock_->Now();
    for (const auto& [rank, member] : state_->members()) {
      WorkerState worker;
      worker.rank = rank;
      worker.client = member.client;
      worker.committed = state_->contributions().count(rank) != 0;
      worker.attending = attendance_.Attends(member.session);
      worker.lease_remaining = member.lease_end - now;
      if (!worker.committed && member.first_round <= state_->version() &&
          state_->waiting_since() < now) {
        worker.waited_for = now - state_->waiting_since();
      }
      status.workers.push_back(worker);
    }
  }
  if (draining_) {
    status.phase = "draining";
  } else if (!epoch_on_) {
    status.phase = state_ == nullptr ? "waiting_for_shards" : "shard_lost";
  } else if (state_->finished()) {
    status.phase = "finished";
  } else if (!state_->seeded()) {
    status.phase = "unseeded";
  } else {
    status.phase = in_round_ ? "closing" : "open";
  }
  return status;
}

std::optional<RoundResult> Coordinator::Impl::LastOutcome() const {
  MutexLock lock(&mutex_);
  return last_outcome_;
}

bool Coordinator::Impl::finished() const {
  MutexLock lock(&mutex_);
  return state_ != nullptr && state_->finished();
}

// --- The facade --------------------------------------------------------------

absl::StatusOr<RuleChangeResult> Coordinator::SetRule(
    const RuleChange& change, const CombinationCheck& check) {
  return impl_->SetRule(change, check);
}
void Coordinator::Evict(int32_t rank, const std::string& reason,
                        std::function<void(absl::StatusOr<Eviction>)> done) {
  impl_->Evict(rank, reason, std::move(done));
}
std::vector<RoundRecord> Coordinator::Rounds() const { return impl_->Rounds(); }
std::vector<double> Coordinator::TensorOrthogonality() const {
  return impl_->TensorOrthogonality();
}
JobStatus Coordinator::Status() const { return impl_->Status(); }
std::optional<RoundResult> Coordinator::LastOutcome() const {
  return impl_->LastOutcome();
}
bool Coordinator::finished() const { return impl_->finished(); }

}  // namespace agg
