// What a CoordinatorState says to others: events for those who attend, answers
// for those who wait, descriptions for those who ask.
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/job_phase.h"
#include "server/base/log.h"
#include "server/coordinator/arrival_times.h"
#include "server/coordinator/close_policy.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/departures.h"
#include "server/coordinator/job_facts.h"
#include "server/coordinator/job_types.h"
#include "server/coordinator/waiting_text.h"
#include "server/round/round_report.h"
#include "server/round/worker_transports.h"

namespace agg {

// --- Events and answers ------------------------------------------------------

DeferredCalls CoordinatorState::Broadcast(const JobEvent& event) const {
  DeferredCalls calls;
  for (const Attendance::EventCallback& callback : attendance_.AllCallbacks()) {
    calls.Add([callback, event] { callback(event); });
  }
  return calls;
}

DeferredCalls CoordinatorState::SayWhoIsWaitedFor(absl::Time now) {
  if (!epoch_on_ || draining_ || in_round_ || job_->finished()) return {};
  Waiting waiting = job_->waiting();
  if (open_waves_.has_value() && !open_waves_->done()) {
    waiting.uncommitted = open_waves_->Missing(IsAlive());
  }
  if (close_options_.floor_policy != FloorPolicy::kWarn) {
    waiting.floor = floor_.Text();
  }
  const std::string text = waiting_report_.Say(waiting, now);
  if (text.empty()) return {};
  LogWarning(text);
  return Broadcast({JobEventKind::kWaiting, job_->version(), text});
}

DeferredCalls CoordinatorState::ReplyToWaiters() {
  return waiters_.ReplyToKnown(
      [this](const OutcomeQuery& query) { return job_->Answer(query); });
}

void CoordinatorState::LogJoin(const JoinCall& call,
                               const JoinResult& result) const {
  LogInfo("rank ", call.rank, " joined (", call.client, "); ",
          job_->members().size(), " of ", options_.workers,
          " workers are in; its first round is ", result.first_round);
}

// What operators have to find in the log without asking: who has gone and why,
// and the end of the job. Joins are logged where they are answered.
void CoordinatorState::NoteEffects(const JobEffects& effects) {
  const int num_left = static_cast<int>(job_->members().size());
  std::vector<EvictedSession> evicted;
  for (const Departure& departure : effects.departures) {
    ++num_departures_[static_cast<size_t>(departure.kind)];
    if (departure.kind == DepartureKind::kEvicted) {
      evicted.push_back({departure.session, departure.reason});
    }
    const std::string line = DescribeDeparture(departure, options_, num_left);
    if (departure.kind == DepartureKind::kLeft) {
      LogInfo(line);
    } else {
      LogWarning(line);
    }
  }
  if (!evicted.empty()) {
    AddEvicted(evicted, &evicted_);
    NoteChange();
  }
  for (const auto& [session, event] : effects.events) {
    if (event.kind != JobEventKind::kFinished) continue;
    NoteChange();
    const std::string line =
        absl::StrCat("the job has ", event.message, "; epoch ", job_->epoch());
    if (job_->failed()) {
      LogError(line);
    } else {
      LogInfo(line);
    }
  }
}

DeferredCalls CoordinatorState::Announce(const JobEffects& effects) {
  NoteEffects(effects);
  DeferredCalls calls;
  for (const auto& [session, event] : effects.events) {
    if (session == 0) {  // for everybody
      calls.Add(Broadcast(event));
    } else if (attendance_.Attends(session)) {
      calls.Add([callback = attendance_.CallbackOf(session), event = event] {
        callback(event);
      });
    }
  }
  for (const auto& [session, reason] : effects.ended) {
    attendance_.Forget(session);
    awaited_.Forget(session);
    calls.Add(waiters_.FailSession(session, reason));
  }
  calls.Add(AnnounceLosses(effects));
  calls.Add(ReplyToWaiters());
  return calls;
}

DeferredCalls CoordinatorState::AnnounceLosses(
    const JobEffects& effects) const {
  DeferredCalls calls;
  const int num_left = static_cast<int>(job_->members().size());
  for (const Departure& departure : effects.departures) {
    if (departure.kind == DepartureKind::kLeft ||
        departure.kind == DepartureKind::kSuperseded) {
      continue;  // wanted, or in again
    }
    calls.Add(Broadcast({JobEventKind::kWorkerLost, job_->version(),
                         DescribeDeparture(departure, options_, num_left)}));
  }
  return calls;
}

absl::StatusOr<uint64_t> CoordinatorState::Renew(uint64_t epoch,
                                                 uint64_t session,
                                                 absl::string_view transports,
                                                 int num_shards,
                                                 absl::Time now) {
  absl::Status status = CheckAcceptingCalls(epoch);
  if (!status.ok()) return status;
  absl::StatusOr<WorkerTransports> said =
      ParseTransports(transports, num_shards);
  if (!said.ok()) return said.status();
  status = job_->Renew(session, now);
  if (!status.ok()) return status;
  if (!transports.empty()) {
    (*job_->Find(session))->transports = *std::move(said);
  }
  return job_->version();
}

// --- Questions ---------------------------------------------------------------

absl::StatusOr<JoinResult> CoordinatorState::Observe() const {
  const absl::Status status = CheckAcceptingCalls();
  if (!status.ok()) return status;
  if (!job_->manifest().has_value()) {
    return absl::FailedPreconditionError(
        "no worker has joined yet, so the job has no manifest");
  }
  JoinResult result;
  result.epoch = job_->epoch();
  result.version = job_->version();
  result.made = job_->id().made;
  result.shard_lives = shard_lives_;
  result.local_sockets = local_sockets_;
  result.region_sockets = region_sockets_;
  result.seeded = job_->seeded();
  result.finished = job_->finished();
  result.manifest = *job_->manifest();
  result.combination = CombinationOf(job_->version());
  return result;
}

JobPhase CoordinatorState::Phase() const {
  if (draining_) return JobPhase::kDraining;
  if (!epoch_on_) {
    return job_ == nullptr ? JobPhase::kWaitingForShards : JobPhase::kShardLost;
  }
  if (job_->finished()) return JobPhase::kFinished;
  if (!job_->seeded()) return JobPhase::kUnseeded;
  return in_round_ ? JobPhase::kClosing : JobPhase::kOpen;
}

// What somebody who looks at the job should know first.
std::string CoordinatorState::Message() const {
  if (!epoch_on_) return std::string(no_epoch_.message());
  if (!lost_after_end_.empty()) return lost_after_end_;
  if (job_->failed()) return job_->end_reason();
  if (job_->finished())
    return absl::StrCat("finished: ", job_->end_reason(), "; ", WayBack());
  if (!job_->seeded()) return checkpoints_.Status(absl::Time()).restore;
  if (floor_.below()) return absl::StrCat("the job ", floor_.Text());
  const std::string skipped = skipped_.Text();
  const std::string replicas = replicas_.Text();
  return skipped.empty() || replicas.empty()
             ? absl::StrCat(skipped, replicas)
             : absl::StrCat(skipped, "; ", replicas);
}

JobStatus CoordinatorState::Status(absl::Time now) const {
  JobStatus status;
  status.phase = Phase();
  status.message = Message();
  status.shard_errors = shard_errors_;
  status.recovering = recovering_;
  status.rewinds = num_rewinds_;
  status.checkpoint = checkpoints_.Status(now);
  status.combination = NamesOf(combine_);
  status.next_combination = NamesOf(next_combine_.value_or(combine_));
  for (int kind = 0; kind < kNumDepartureKinds; ++kind) {
    status.ended_workers.push_back(
        {DepartureName(static_cast<DepartureKind>(kind)),
         num_departures_[static_cast<size_t>(kind)]});
  }
  if (job_ == nullptr) return status;
  status.epoch = job_->epoch();
  status.version = job_->version();
  status.round = job_->version();
  status.history = job_->history();
  status.replicated = options_.replicated && epoch_on_ && job_->seeded();
  status.seeded = job_->seeded();
  // Nobody is waited for once the epoch, or the job, is over.
  const bool over = !epoch_on_ || job_->finished();
  if (!over) status.missing_ranks = job_->MissingRanks();
  if (!over && open_waves_.has_value() && !open_waves_->done()) {
    status.missing_ranks = open_waves_->Missing(IsAlive());
  }
  status.round_timeout = TimeoutOf(close_options_, Snapshot());
  status.min_workers = options_.min_workers;
  status.consecutive_skipped_rounds = skipped_.length();
  status.failed = job_->failed();
  status.not_finite_rounds = skipped_.not_finite_length();
  status.differing_ranks = replicas_.differing();
  if (!over && floor_.below()) {
    status.below_floor_for = now - floor_.below_since();
    status.below_floor = true;
  }
  for (const auto& [rank, member] : job_->members()) {
    status.workers.push_back(StateOf(member, over, now));
  }
  return status;
}

WorkerState CoordinatorState::StateOf(const Member& member, bool over,
                                      absl::Time now) const {
  WorkerState worker;
  worker.rank = member.rank;
  worker.client = member.client;
  worker.committed = job_->contributions().count(member.rank) != 0;
  worker.attending = attendance_.Attends(member.session);
  worker.lease_remaining = member.lease_end - now;
  worker.transports = member.transports;
  const RankArrivals arrivals = arrivals_.Of(member.rank);
  worker.late_rows = arrivals.late_rows;
  worker.last_rows = arrivals.last_rows;
  worker.lateness = arrivals.lateness;
  // Only a member of the open round can hold it up, and only once somebody has
  // committed.
  if (!over && !worker.committed && member.first_round <= job_->version() &&
      job_->waiting_since() < now) {
    worker.waited_for = now - job_->waiting_since();
  }
  return worker;
}

}  // namespace agg
