// A Join's state is one atomic, since its answer may come from three threads;
// the queue has a lock, under which no Join is answered. Joins takes a worker
// in by two halves, of which the loop's allocates nothing.
#include "server/coordinator/joins.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/base/log.h"
#include "server/base/status_macros.h"
#include "server/coordinator/job_state.h"

namespace agg {

namespace {

// `is_rank`: the call's rank is one that the job can have. Others share a
// reason: a peer that makes ranks up would use all reasons up.
void LogRefused(const JoinCall& call, const absl::Status& status,
                bool is_rank) {
  LogWarningOf(absl::StrCat("refused join of ",
                            is_rank ? absl::StrCat(call.rank) : "no rank", " ",
                            status.code()),
               "join of rank ", call.rank, " (", call.client,
               ") refused: ", status.ToString());
}

}  // namespace

// --- One Join ---------------------------------------------------------------

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
  LogRefused(call_, status, /*is_rank=*/true);  // else it was not queued
  done_(status);
  return true;
}

void PendingJoin::Answer(absl::StatusOr<JoinResult> result) {
  AGG_DCHECK(state_ == State::kJoining);
  state_ = State::kAnswered;
  done_(std::move(result));
}

// --- All of them ------------------------------------------------------------

absl::Status JoinQueue::Add(std::shared_ptr<PendingJoin> join) {
  MutexLock lock(&mutex_);
  AGG_RETURN_IF_ERROR(CheckQueue(waiting_.size()));
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

// --- Joins ------------------------------------------------------------------

namespace {

absl::Status ManifestGone() {
  return absl::UnavailableError(
      "the manifest of those who were in before has been given up; join again");
}

absl::Status LostMeanwhile() {
  return absl::UnavailableError(
      "a shard was lost while memory was reserved; join again");
}

// Adds what to do to an error of a shard that has no memory.
absl::Status WithAdvice(const absl::Status& status) {
  if (!absl::IsResourceExhausted(status) || IsLimitError(status)) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      status.message(),
      "; free memory on that host, use more shards, or start fewer workers"));
}

absl::Status HaveForgotten(PeerGroup* peers, uint64_t epoch) {
  return peers->ForEach(
      [&](int, ShardPeer* peer) { return peer->ForgetManifest(epoch); });
}

}  // namespace

void Joins::Join(JoinCall call, PendingJoin::Done done,
                 PendingJoin::Gone gone) {
  // Before the call is queued and logged, which would keep the text.
  absl::Status status = ValidateText("client", call.client);
  if (status.ok()) {
    MutexLock lock(&context_->mutex);
    status = context_->state.CheckAcceptingCalls();
    // One that would be refused in its turn waits for nothing, and one that
    // brings the job's manifest waits without a copy of it.
    if (status.ok()) status = CheckManifest(call);
    if (status.ok() && context_->state.job()->manifest().has_value()) {
      call.manifest = *context_->state.job()->manifest();
    }
  }
  if (status.ok()) {
    status = queue_.Add(std::make_shared<PendingJoin>(
        std::move(call), done, std::move(gone),
        context_->clock->Now() + JoinQueue::kTimeout));
  }
  if (!status.ok()) done(status);
}

// Another manifest than the job's is refused, unless its only holder is the
// former life of the caller: that one goes, and the Join comes again.
absl::Status Joins::CheckManifest(const JoinCall& call) {
  if (context_->state.job()->IsInItsOwnWay(call)) {
    // While the loop is in a phase such a caller may come again and again.
    if (context_->operations.size() < kMaxQueuedCalls) {
      context_->operations.push_back([this, call] { MakeWayFor(call); });
      context_->changed.NotifyAll();
    }
    return ManifestGone();
  }
  const absl::Status status = context_->state.job()->CheckJoin(call);
  if (!status.ok()) {
    LogRefused(call, status,
               call.rank >= 0 && call.rank < context_->options.max_workers);
  }
  return status;
}

void Joins::MakeWayFor(const JoinCall& call) {
  {
    MutexLock lock(&context_->mutex);
    if (!context_->state.CheckAcceptingCalls().ok()) return;
    JobState* const job = context_->state.job();
    if (!job->IsInItsOwnWay(call)) return;
    job->EndFormerSession(call);
  }
  context_->DeliverEffects();
}

// The shards forget it first: until then the job counts as having it, so that
// no Join brings them another one meanwhile.
bool Joins::RunIfDue() {
  uint64_t epoch;
  {
    MutexLock lock(&context_->mutex);
    if (!context_->state.CheckAcceptingCalls().ok() ||
        !context_->state.job()->ManifestIsUnheld()) {
      return false;
    }
    epoch = context_->state.job()->epoch();
  }
  const absl::Status status = HaveForgotten(&context_->peers, epoch);
  if (!status.ok()) {
    context_->LoseEpoch(epoch, status);
    return true;
  }
  MutexLock lock(&context_->mutex);
  if (!context_->state.CheckAcceptingCalls(epoch).ok()) return true;
  // Nobody has joined meanwhile: Joins end on this thread.
  context_->state.job()->ForgetManifest();
  LogInfoOf(
      "manifest given up",
      "the job is not seeded and nobody is in: its manifest is given up, and "
      "the next worker that joins brings one");
  return true;
}

// --- The joins thread's half ------------------------------------------------

void Joins::Serve() {
  while (const std::shared_ptr<PendingJoin> join = queue_.Next()) {
    ServeOne(join);
  }
}

bool Joins::ServeNext() {
  const std::shared_ptr<PendingJoin> join = queue_.TryNext();
  if (join == nullptr) return false;
  ServeOne(join);
  return true;
}

void Joins::ServeOne(const std::shared_ptr<PendingJoin>& join) {
  absl::StatusOr<Reservation> reserved = Reserve(*join);
  absl::Status status = reserved.status();
  if (status.ok()) {
    status = context_->Enqueue(
        {}, [this, join, reserved] { FinishJoin(join, *reserved); });
  }
  if (!status.ok()) {
    join->Refuse(status);
    queue_.Served();
  } else if (!reserved->first) {
    queue_.Served();
  }
  // Else FinishJoin says so: until the job has its manifest, another Join could
  // bring another one, and the shards would follow it.
}

absl::StatusOr<Joins::Reservation> Joins::Reserve(const PendingJoin& join) {
  const JoinCall& call = join.call();
  AGG_RETURN_IF_ERROR(join.CheckCaller());
  Reservation reservation;
  {
    MutexLock lock(&context_->mutex);
    AGG_RETURN_IF_ERROR(context_->state.CheckAcceptingCalls());
    const JobState& job = *context_->state.job();
    AGG_RETURN_IF_ERROR(job.CheckJoin(call));
    // CheckJoin may have found the very manifest that nobody holds any more.
    if (job.ManifestIsUnheld()) return ManifestGone();
    reservation.epoch = job.epoch();
    reservation.first = !job.manifest().has_value();
  }
  queue_.WaitFor(peers_.names());
  const absl::Status status = peers_.ForEach([&](int ordinal, ShardPeer* peer) {
    absl::Status answer;
    if (reservation.first) {
      answer = peer->SetManifest(reservation.epoch, *call.manifest);
    }
    if (answer.ok()) answer = peer->ReserveRow(reservation.epoch, call.rank, 0);
    queue_.NoteAnswer(ordinal);
    return answer;
  });
  if (status.ok()) return reservation;
  {
    // Then the error may be that of a shard that has begun another epoch, and
    // no reason for the worker to give up.
    MutexLock lock(&context_->mutex);
    if (!context_->state.CheckAcceptingCalls(reservation.epoch).ok()) {
      return LostMeanwhile();
    }
    if (IsGone(reservation, *context_->state.job())) return ManifestGone();
  }
  if (reservation.first) ForgetManifest(&peers_, reservation.epoch);
  return WithAdvice(status);
}

bool Joins::IsGone(const Reservation& reservation, const JobState& job) {
  return !reservation.first &&
         (!job.manifest().has_value() || job.ManifestIsUnheld());
}

// One shard may have refused the first manifest after others had set up memory
// for it.
void Joins::ForgetManifest(PeerGroup* peers, uint64_t epoch) {
  {
    MutexLock lock(&context_->mutex);
    if (!context_->state.CheckAcceptingCalls(epoch).ok()) return;
  }
  const absl::Status status = HaveForgotten(peers, epoch);
  if (!status.ok()) {
    LogWarningOf("forgetting", "forgetting its manifest: ", status.ToString());
  }
}

// --- The loop's half of a join ----------------------------------------------

void Joins::FinishJoin(const std::shared_ptr<PendingJoin>& join,
                       const Reservation& reservation) {
  // Else it was refused meanwhile. What was reserved stays for the next Join of
  // that rank.
  if (join->BeginJoining()) {
    absl::StatusOr<JoinResult> result = TryJoin(*join, reservation);
    context_->DeliverEffects();
    if (!result.ok()) {
      LogRefused(join->call(), result.status(), /*is_rank=*/true);
      if (reservation.first)
        ForgetManifest(&context_->peers, reservation.epoch);
    }
    join->Answer(std::move(result));
  }
  if (reservation.first) queue_.Served();
}

// A session has to be known to all shards before the worker is in, so a join
// takes two looks at the state.
absl::StatusOr<JoinResult> Joins::TryJoin(const PendingJoin& join,
                                          const Reservation& reservation) {
  const JoinCall& call = join.call();
  const uint64_t epoch = reservation.epoch;
  // After this the rank's former session is over.
  AGG_RETURN_IF_ERROR(join.CheckCaller());
  if (reservation.first) {
    AGG_RETURN_IF_ERROR(context_->engine.Reset(epoch, *call.manifest));
  }
  SessionChange change;
  {
    MutexLock lock(&context_->mutex);
    AGG_RETURN_IF_ERROR(context_->state.CheckAcceptingCalls());
    JobState* const job = context_->state.job();
    if (job->epoch() != epoch) return LostMeanwhile();
    AGG_RETURN_IF_ERROR(job->CheckJoin(call));
    // The row that was reserved went with the manifest, or goes with it.
    if (IsGone(reservation, *job)) return ManifestGone();
    AGG_ASSIGN_OR_RETURN(const uint64_t session, job->SessionFor(call));
    if (job->Resumes(session)) return Resume(call);
    change = job->BeginJoin(call, session);
  }
  absl::Status propagated = context_->PropagateSession(epoch, change);
  propagated.Update(join.CheckCaller());
  MutexLock lock(&context_->mutex);
  AGG_RETURN_IF_ERROR(context_->state.CheckAcceptingCalls(epoch));
  if (!propagated.ok()) {
    context_->state.job()->CancelJoin(change);
    return propagated;
  }
  JoinResult result =
      context_->state.job()->FinishJoin(call, change, context_->clock->Now());
  context_->state.LogJoin(call, result);
  context_->state.Complete(result.first_round, &result);
  return result;
}

JoinResult Joins::Resume(const JoinCall& call) {
  JoinResult result =
      context_->state.job()->ResumeJoin(call, context_->clock->Now());
  LogInfoOf(absl::StrCat("resume of ", call.rank), "rank ", call.rank,
            " is back (", call.client, ") in epoch ", result.epoch,
            ", at version ", call.resume_version,
            result.rewound ? ", of a past that was given up" : "");
  context_->state.Complete(result.first_round, &result);
  return result;
}

}  // namespace agg
