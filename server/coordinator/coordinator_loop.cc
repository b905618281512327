// What the coordinator's own thread does, one thing after another; and the
// beginnings and ends of epochs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/coordinator/coordinator_impl.h"

namespace agg {
namespace {

constexpr absl::Duration kAttachInterval = absl::Seconds(1);

}  // namespace

bool Coordinator::Impl::RunOnce() {
  SpreadLoss();
  return RunOperation() || AttachIfDue() || ExpireIfDue() || SeedIfDue() ||
         RoundIfDue();
}

void Coordinator::Impl::Loop() {
  for (;;) {
    while (RunOnce()) {
      MutexLock lock(&mutex_);
      if (stop_) return;
    }
    MutexLock lock(&mutex_);
    if (stop_) return;
    if (!operations_.empty() || spread_loss_) continue;
    // A commit between RunOnce and here is seen by asking again.
    const absl::Time now = clock_->Now();
    const absl::Time wake = NextWake();
    if (wake > now)
      changed_.WaitFor(&mutex_, std::min(wake - now, absl::Seconds(1)));
  }
}

absl::Time Coordinator::Impl::NextWake() const {
  if (!epoch_on_) return draining_ ? absl::InfiniteFuture() : next_attach_at_;
  absl::Time wake = absl::InfiniteFuture();
  for (const auto& [rank, member] : state_->members()) {
    wake = std::min(wake, member.lease_end);
  }
  if (draining_ || state_->finished()) return wake;
  if (state_->seed_committed().has_value()) return absl::InfinitePast();
  if (!state_->seeded()) return wake;
  const CloseDecision decision =
      DecideClose(close_options_, state_->close_snapshot(), clock_->Now());
  if (decision.close) return absl::InfinitePast();
  wake = std::min(wake, decision.ask_again_at);
  if (options_.straggler_warning > absl::ZeroDuration() &&
      warned_round_ != state_->version()) {
    wake = std::min(wake, state_->waiting_since() + options_.straggler_warning);
  }
  return wake;
}

bool Coordinator::Impl::RunOperation() {
  std::function<void()> operation;
  {
    MutexLock lock(&mutex_);
    if (operations_.empty()) return false;
    operation = std::move(operations_.front());
    operations_.pop_front();
  }
  operation();
  return true;
}

// --- Epochs ------------------------------------------------------------------

bool Coordinator::Impl::AttachIfDue() {
  uint64_t epoch;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    if (epoch_on_ || draining_ || spread_loss_ || now < next_attach_at_) {
      return false;
    }
    next_attach_at_ = now + kAttachInterval;
    // P14: above every former epoch, of a former process, too.
    epoch = std::max(last_epoch_ + 1,
                     static_cast<uint64_t>(absl::ToUnixMicros(now)));
    last_epoch_ = epoch;
  }
  absl::Status status = peers_.ForEach([this, epoch](int, ShardPeer* peer) {
    return peer->Attach(epoch, LossCallback(epoch));
  });
  MutexLock lock(&mutex_);
  if (!status.ok()) {
    if (state_ == nullptr) {
      no_epoch_ = absl::UnavailableError(
          absl::StrCat("waiting for all shards: ", status.message()));
    }
    return true;
  }
  if (last_epoch_ != epoch) return true;  // lost again already
  LogInfo(state_ == nullptr ? "all shards are attached, epoch "
                            : "all shards are attached again; the job goes on "
                              "after a new Seed, optimizer state reset, epoch ",
          epoch);
  state_ = std::make_unique<JobState>(options_, epoch, clock_->Now());
  OpenCombination();
  epoch_on_ = true;
  no_epoch_ = absl::OkStatus();
  warned_round_.reset();
  return true;
}

void Coordinator::Impl::LoseEpoch(uint64_t epoch, const absl::Status& reason) {
  Closures closures;
  {
    MutexLock lock(&mutex_);
    if (epoch != last_epoch_) return;
    if (epoch_on_ && state_->finished()) {
      // Another epoch would discard the last version on the shards that live.
      lost_after_end_ =
          absl::StrCat("finished at version ", state_->version(),
                       "; a shard's part of it is gone: ", reason.message());
      LogWarning(lost_after_end_);
      return;
    }
    ++last_epoch_;  // an Attach under way for this epoch comes too late
    if (!epoch_on_) return;
    epoch_on_ = false;
    spread_loss_ = true;
    no_epoch_ = absl::UnavailableError(absl::StrCat(
        "shard lost: ", reason.message(), "; epoch ", epoch, " is over"));
    next_attach_at_ = clock_->Now() + kAttachInterval;
    closures = FailWaiters(no_epoch_);
    Closures told =
        TellAll(JobEvent{JobEventKind::kShardLost, state_->version(),
                         std::string(no_epoch_.message())});
    closures.insert(closures.end(), told.begin(), told.end());
    attendance_.ForgetAll();
    changed_.NotifyAll();
    LogError(no_epoch_.message());
  }
  RunAll(closures);
}

std::function<void(absl::Status)> Coordinator::Impl::LossCallback(
    uint64_t epoch) {
  return [listener = listener_, epoch](const absl::Status& reason) {
    Impl* impl;
    {
      MutexLock lock(&listener->mutex);
      impl = listener->impl;
      if (impl == nullptr) return;
      ++listener->num_calls;
    }
    impl->LoseEpoch(epoch, reason);
    MutexLock lock(&listener->mutex);
    --listener->num_calls;
    listener->calls_ended.NotifyAll();
  };
}

void Coordinator::Impl::StopListening() {
  MutexLock lock(&listener_->mutex);
  listener_->impl = nullptr;
  while (listener_->num_calls > 0) {
    listener_->calls_ended.Wait(&listener_->mutex);
  }
}

void Coordinator::Impl::SpreadLoss() {
  absl::Status reason;
  uint64_t epoch;
  {
    MutexLock lock(&mutex_);
    if (!spread_loss_) return;
    spread_loss_ = false;
    reason = no_epoch_;
    epoch = state_->epoch();
  }
  peers_
      .ForEach([&](int, ShardPeer* peer) {
        peer->Lose(epoch, reason);
        return absl::OkStatus();
      })
      .IgnoreError();
}

}  // namespace agg
