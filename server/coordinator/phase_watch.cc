// Notes when calls begin and end. The threads of a round write here, the one
// that looks at deadlines and those that ask for the status read.
#include "server/coordinator/phase_watch.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agg {
namespace {

// A shorter wait is the ordinary course of a round.
constexpr absl::Duration kWorthSaying = absl::Seconds(5);

}  // namespace

PhaseWatch::PhaseWatch(const Clock* clock, absl::Duration timeout,
                       std::vector<std::string> shards)
    : clock_(clock),
      timeout_(timeout),
      shards_(std::move(shards)),
      running_(shards_.size()),
      num_late_(shards_.size(), 0) {}

PhaseWatch::Call::Call(PhaseWatch* watch, int shard, const Phase& phase)
    : watch_(watch), shard_(shard) {
  Running running;
  running.kind = absl::StrCat("phase ", PhaseName(phase.kind));
  running.name = absl::StrCat(running.kind, " of round ", phase.round);
  running.epoch = phase.epoch;
  running.round = phase.round;
  watch->Begin(shard, std::move(running));
}

PhaseWatch::Call::Call(PhaseWatch* watch, int shard, const char* name,
                       uint64_t epoch)
    : watch_(watch), shard_(shard) {
  Running running;
  running.kind = name;
  running.name = name;
  running.epoch = epoch;
  watch->Begin(shard, std::move(running));
}

void PhaseWatch::Begin(int shard, Running running) {
  running.on = true;
  running.since = clock_->Now();
  running.moved_at = running.since;
  MutexLock lock(&mutex_);
  running_[static_cast<size_t>(shard)] = std::move(running);
}

PhaseWatch::Call::~Call() {
  MutexLock lock(&watch_->mutex_);
  watch_->running_[static_cast<size_t>(shard_)].on = false;
}

std::vector<LatePhase> PhaseWatch::TakeLate(
    const std::vector<uint64_t>& progress) {
  const absl::Time now = clock_->Now();
  std::vector<LatePhase> late;
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < running_.size(); ++i) {
    Running& call = running_[i];
    if (!call.on || call.said) continue;
    if (i < progress.size()) {
      // The first look has nothing to compare with.
      if (call.progress.value_or(progress[i]) != progress[i]) {
        call.moved = true;
        call.moved_at = now;
      }
      call.progress = progress[i];
    }
    if (now - call.moved_at < timeout_) continue;
    call.said = true;
    ++num_late_[i];
    late.push_back(
        {static_cast<int>(i), call.epoch,
         absl::StrCat(
             shards_[i],
             call.moved ? " has made no progress in " : " has not answered ",
             call.name, call.moved ? " for " : " within ",
             absl::FormatDuration(timeout_), " (phase_timeout_seconds)")});
  }
  return late;
}

std::vector<uint64_t> PhaseWatch::num_late() const {
  MutexLock lock(&mutex_);
  return num_late_;
}

std::string PhaseWatch::WaitingText() const {
  const absl::Time now = clock_->Now();
  std::vector<std::string> names;
  MutexLock lock(&mutex_);
  const Running* longest = nullptr;
  for (size_t i = 0; i < running_.size(); ++i) {
    const Running& call = running_[i];
    if (!call.on || now - call.since <= kWorthSaying) continue;
    names.push_back(shards_[i]);
    if (longest == nullptr || call.since < longest->since) longest = &call;
  }
  if (longest == nullptr) return "";
  return absl::StrCat(
      "round ", longest->round, " has waited ",
      absl::FormatDuration(absl::Trunc(now - longest->since, absl::Seconds(1))),
      " for ", absl::StrJoin(names, ", "), " (", longest->kind, ")");
}

}  // namespace agg
