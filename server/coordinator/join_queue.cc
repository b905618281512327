// A Join's state is one atomic, since its answer may come from three threads;
// the queue has a lock, under which no Join is answered.
#include "server/coordinator/join_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/dcheck.h"
#include "server/base/log.h"

namespace agg {
// --- One Join ----------------------------------------------------------------

absl::Status PendingJoin::CheckCaller() const {
  if (state_ != State::kAnswered && (gone_ == nullptr || !gone_())) {
    return absl::OkStatus();
  }
  return absl::CancelledError("the caller of this Join has gone");
}

bool PendingJoin::BeginJoining() {
  State reserving = State::kReserving;
  return state_.compare_exchange_strong(reserving, State::kJoining);
}

bool PendingJoin::Refuse(const absl::Status& status) {
  State reserving = State::kReserving;
  if (!state_.compare_exchange_strong(reserving, State::kAnswered)) {
    return false;
  }
  LogWarning("join of rank ", call_.rank, " (", call_.client,
             ") refused: ", status.ToString());
  done_(status);
  return true;
}

void PendingJoin::Answer(absl::StatusOr<JoinResult> result) {
  AGG_DCHECK(state_ == State::kJoining);
  state_ = State::kAnswered;
  done_(std::move(result));
}

// --- All of them -------------------------------------------------------------

absl::Status JoinQueue::Add(std::shared_ptr<PendingJoin> join) {
  MutexLock lock(&mutex_);
  if (waiting_.size() >= kMaxWaiting) {
    return absl::UnavailableError(absl::StrCat(
        waiting_.size(), " calls wait for the coordinator already; try again"));
  }
  waiting_.push_back(std::move(join));
  changed_.NotifyAll();
  return absl::OkStatus();
}

std::shared_ptr<PendingJoin> JoinQueue::Take() {
  if (served_ != nullptr || waiting_.empty()) return nullptr;
  served_ = std::move(waiting_.front());
  waiting_.pop_front();
  return served_;
}

std::shared_ptr<PendingJoin> JoinQueue::TryNext() {
  MutexLock lock(&mutex_);
  return Take();
}

std::shared_ptr<PendingJoin> JoinQueue::Next() {
  MutexLock lock(&mutex_);
  while (!stopped_) {
    std::shared_ptr<PendingJoin> next = Take();
    if (next != nullptr) return next;
    changed_.Wait(&mutex_);
  }
  return nullptr;
}

void JoinQueue::Served() {
  MutexLock lock(&mutex_);
  served_ = nullptr;
  awaited_.clear();
  changed_.NotifyAll();
}

void JoinQueue::WaitFor(std::vector<std::string> shards) {
  MutexLock lock(&mutex_);
  awaited_ = std::move(shards);
}

void JoinQueue::NoteAnswer(int ordinal) {
  MutexLock lock(&mutex_);
  awaited_[static_cast<size_t>(ordinal)].clear();
}

std::string JoinQueue::WhatIsLate() const {
  std::vector<std::string> late;
  for (const std::string& shard : awaited_) {
    if (!shard.empty()) late.push_back(shard);
  }
  if (late.empty()) return "the coordinator has not come to it";
  return absl::StrCat(absl::StrJoin(late, ", "),
                      late.size() == 1 ? " has" : " have",
                      " not reserved memory for rank ", served_->call().rank,
                      " within ", absl::FormatDuration(kTimeout));
}

void JoinQueue::Expire(absl::Time now) {
  std::vector<std::shared_ptr<PendingJoin>> late;
  absl::Status reason;
  {
    MutexLock lock(&mutex_);
    if (served_ != nullptr && served_->deadline() <= now) {
      late.push_back(served_);
    }
    // Those that came later have later deadlines.
    while (!waiting_.empty() && waiting_.front()->deadline() <= now) {
      late.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    if (late.empty()) return;
    reason = absl::UnavailableError(absl::StrCat(
        WhatIsLate(),
        "; join again: what is reserved later is used then. If it happens "
        "again, look at that host's memory (swap, other processes)"));
  }
  // The one that is served may be with the loop by now: that is no delay of a
  // shard's, and the loop answers it.
  for (const auto& join : late) join->Refuse(reason);
}

void JoinQueue::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  changed_.NotifyAll();
}

}  // namespace agg
