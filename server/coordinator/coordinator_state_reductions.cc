// Small reductions beside the model (P51), as changes of plain state.
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/coordinator/coordinator_state.h"

namespace agg {

SmallReductions::Job CoordinatorState::ReductionJob() const {
  SmallReductions::Job job;
  job.history = job_->history();
  job.version = job_->version();
  job.started = job_->started() || job_->finished();
  job.workers = options_.workers;
  for (const auto& [rank, member] : job_->members()) {
    job.members.push_back(
        {rank, member.first_round, job_->contributions().count(rank) > 0});
  }
  return job;
}

DeferredCalls CoordinatorState::Reduce(uint64_t epoch, const ReduceCall& call,
                                       absl::Time now,
                                       SmallReductions::Done done,
                                       uint64_t* number) {
  *number = 0;
  absl::Status status = CheckAcceptingCalls(epoch);
  if (status.ok()) status = SmallReductions::Check(call);
  absl::StatusOr<int32_t> rank = absl::UnknownError("not asked");
  if (status.ok()) {
    rank = job_->sessions().Rank(call.session);
    status = rank.status();
  }
  if (status.ok() && !job_->seeded()) {
    status = absl::FailedPreconditionError(
        "the job has no parameters yet, so that its workers are at no version; "
        "Seed first");
  }
  if (!status.ok()) {
    DeferredCalls refused;
    refused.Add([done = std::move(done), status] { done(status); });
    return refused;
  }
  const SmallReductions::Job job = ReductionJob();
  // Of a version whose round has ended since, it is not what this call is for.
  if (reductions_.CloseIfDue(job)) NoteChange();
  DeferredCalls calls =
      reductions_.Add(call, *rank, job, now, std::move(done), number);
  return calls;
}

std::vector<SmallReductions::Made> CoordinatorState::MakeReductions() {
  if (!epoch_on_) return {};
  if (reductions_.open() && reductions_.CloseIfDue(ReductionJob())) {
    NoteChange();
  }
  return reductions_.TakeMade();
}

DeferredCalls CoordinatorState::SayWhoReducesNot(absl::Time now) {
  if (!epoch_on_ || !reductions_.open()) return {};
  return reductions_.AskAgain(ReductionJob(), now);
}

}  // namespace agg
