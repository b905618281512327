// The threads live as long as the group: a round makes several calls, and
// starting a thread for each would add to its time.
#include "server/coordinator/peer_group.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/round/shard_peer.h"

namespace agg {

// Notes when calls begin and end. The threads of a round write here, the one
// that looks at deadlines and those that ask for the status read.

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

// The lock is not held during a call: the coordinator takes its own lock in it,
// and calls peers, which may report a loss in turn.

void ShardEvents::Notify(uint64_t epoch, const absl::Status& reason) {
  Call([&] { on_loss_(epoch, reason); });
}

void ShardEvents::NotifyDraining(uint64_t epoch, int ordinal) {
  Call([&] { on_draining_(epoch, ordinal); });
}

void ShardEvents::NotifyComplete(uint64_t epoch, int ordinal,
                                 const std::vector<CompleteRow>& rows) {
  Call([&] { on_complete_(epoch, ordinal, rows); });
}

void ShardEvents::NotifyOffer(uint64_t epoch, int ordinal,
                              std::shared_ptr<const CloseOffer> offer) {
  Call([&] { on_offer_(epoch, ordinal, std::move(offer)); });
}

void ShardEvents::Call(const std::function<void()>& callback) {
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    ++num_calls_;
  }
  callback();
  MutexLock lock(&mutex_);
  --num_calls_;
  calls_ended_.NotifyAll();
}

void ShardEvents::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  while (num_calls_ > 0) calls_ended_.Wait(&mutex_);
}

namespace {

// The message goes to workers, and gRPC carries at most some 8 KiB of it.
constexpr size_t kMaxErrors = 8;
constexpr size_t kMaxErrorBytes = 400;

}  // namespace

PeerGroup::PeerGroup(std::vector<ShardPeer*> peers, Order order)
    : peers_(std::move(peers)),
      order_(std::move(order)),
      pending_(peers_.size(), false),
      statuses_(peers_.size()) {
  for (int i = 0; i + 1 < size() && order_ == nullptr; ++i) {
    threads_.emplace_back([this, i] { Work(i); });
  }
}

PeerGroup::~PeerGroup() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::vector<std::string> PeerGroup::names() const {
  std::vector<std::string> names;
  for (const ShardPeer* peer : peers_) names.push_back(peer->name());
  return names;
}

void PeerGroup::Work(int ordinal) {
  for (;;) {
    const std::function<absl::Status(int, ShardPeer*)>* call;
    {
      MutexLock lock(&mutex_);
      while (!pending_[ordinal] && !stop_) changed_.Wait(&mutex_);
      if (stop_) return;
      call = call_;
    }
    absl::Status status = (*call)(ordinal, peers_[ordinal]);
    MutexLock lock(&mutex_);
    pending_[ordinal] = false;
    statuses_[ordinal] = std::move(status);
    --num_running_;
    changed_.NotifyAll();
  }
}

absl::Status PeerGroup::ForEach(
    const std::function<absl::Status(int, ShardPeer*)>& call,
    const std::vector<bool>& skipped) {
  std::vector<bool> called(peers_.size(), true);
  for (size_t i = 0; i < skipped.size(); ++i) called[i] = !skipped[i];
  if (order_ != nullptr) {
    std::vector<absl::Status> statuses(peers_.size());
    for (const int i : order_(size())) {
      if (called[i]) statuses[i] = call(i, peers_[i]);
    }
    MutexLock lock(&mutex_);
    statuses_ = std::move(statuses);
    return AllErrors();
  }
  int own = size() - 1;
  while (own >= 0 && !called[own]) --own;
  if (own >= 0) called[own] = false;
  {
    MutexLock lock(&mutex_);
    call_ = &call;
    statuses_.assign(peers_.size(), absl::OkStatus());
    num_running_ =
        static_cast<int>(std::count(called.begin(), called.end(), true));
    pending_ = called;
    if (num_running_ > 0) changed_.NotifyAll();
  }
  absl::Status last;
  if (own >= 0) last = call(own, peers_[own]);
  MutexLock lock(&mutex_);
  while (num_running_ > 0) changed_.Wait(&mutex_);
  if (own >= 0) statuses_[own] = std::move(last);
  return AllErrors();
}

absl::Status PeerGroup::AllErrors() const {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::vector<std::string> messages;
  size_t num_errors = 0;
  bool orderly = false;     // a shard stops in good order
  bool disorderly = false;  // a shard is lost otherwise
  for (int i = 0; i < size(); ++i) {
    const absl::Status& status = statuses_[i];
    if (status.ok()) continue;
    if (IsOrderlyStop(status)) {
      orderly = true;
    } else if (absl::IsUnavailable(status)) {
      disorderly = true;
    }
    if (num_errors++ == 0 || absl::IsUnavailable(status)) code = status.code();
    if (num_errors > kMaxErrors) continue;
    const std::string name = peers_[i]->name();
    messages.push_back(absl::StartsWith(status.message(), name)
                           ? std::string(status.message())
                           : absl::StrCat(name, ": ", status.message()));
    if (messages.back().size() > kMaxErrorBytes) {
      messages.back().resize(kMaxErrorBytes);
      messages.back() += "..";
    }
  }
  if (num_errors > kMaxErrors) {
    messages.push_back(absl::StrCat(num_errors - kMaxErrors, " more shards"));
  }
  const std::string message = absl::StrJoin(messages, "; ");
  return orderly && !disorderly ? OrderlyStop(message)
                                : absl::Status(code, message);
}

}  // namespace agg
