// Sums are taken by rank, so that they do not depend on who came first.
#include "server/coordinator/small_reductions.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

ReduceAnswer AnswerOf(const KeptReduction& made) {
  return {made.sums, made.ranks, made.left_out, {}};
}

DeferredCalls Tell(SmallReductions::Done done,
                   absl::StatusOr<ReduceAnswer> answer) {
  DeferredCalls calls;
  calls.Add(
      [done = std::move(done), answer = std::move(answer)] { done(answer); });
  return calls;
}

absl::Status Differ(int32_t one, const std::string& what, size_t count,
                    int32_t other, const std::string& others_what,
                    size_t others_count) {
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", one, " reduces ", what, " (values: ", count, "), and rank ",
      other, " ", others_what, " (values: ", others_count,
      "); allowed: the same names, shapes and operation on all ranks, in one "
      "order"));
}

// Of a worker whose version's round has ended: nobody else is there any more,
// and it gets the same again if it asks again.
ReduceAnswer OwnAlone(const ReduceCall& call, int32_t rank,
                      const SmallReductions::Job& job) {
  ReduceAnswer own;
  own.sums = call.values;
  own.ranks = {rank};
  for (const SmallReductions::Member& member : job.members) {
    if (member.rank != rank) own.left_out.push_back(member.rank);
  }
  return own;
}

}  // namespace

absl::Status SmallReductions::Check(const ReduceCall& call) {
  if (call.values.empty() || call.values.size() > kMaxValues) {
    return FieldError(
        "values", absl::StrCat(call.values.size(), " of them"),
        absl::StrCat("1 to ", kMaxValues,
                     "; larger tensors are reduced as rows of a job of their "
                     "own, with the optimizer \"none\""));
  }
  if (call.what.empty() || call.what.size() > kMaxWhatBytes) {
    return FieldError(
        "what", absl::StrCat(call.what.size(), " bytes"),
        absl::StrCat("1 to ", kMaxWhatBytes, "; reduce fewer names at a time"));
  }
  return absl::OkStatus();
}

const KeptReduction* SmallReductions::Find(const ReductionName& name) const {
  for (const KeptReduction& made : kept_) {
    if (made.name == name) return &made;
  }
  return nullptr;
}

absl::Status SmallReductions::CheckName(const ReductionName& name,
                                        const Job& job) const {
  if (name.version > job.version) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker has version ", name.version,
                     ", and the job is at version ", job.version,
                     "; Pull that and go on from there"));
  }
  std::optional<uint32_t> next;
  for (const KeptReduction& made : kept_) {
    if (made.name.history == name.history &&
        made.name.version == name.version) {
      next = made.name.number + 1;
    }
  }
  if (open_.has_value()) next = open_->name.number;
  if (!next.has_value() || *next == name.number) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this worker is at reduction ", name.number, " of version ", name.version,
      ", and the others are at reduction ", *next,
      "; sums are kept of the last ", kMaxKept, " alone, and of ", kMaxValues,
      " values: make another round, and go on from there"));
}

absl::Status SmallReductions::CheckFits(const ReduceCall& call,
                                        int32_t rank) const {
  for (const auto& [other, given] : open_->given) {
    // What this rank gave before does not count: it was stopped, say.
    if (other == rank || (open_->what == call.what &&
                          given.values.size() == call.values.size())) {
      continue;
    }
    return Differ(other, open_->what, given.values.size(), rank, call.what,
                  call.values.size());
  }
  return absl::OkStatus();
}

DeferredCalls SmallReductions::Add(const ReduceCall& call, int32_t rank,
                                   const Job& job, absl::Time now, Done done,
                                   uint64_t* number) {
  *number = 0;
  const ReductionName name{job.history, call.version, call.number};
  const KeptReduction* const made = Find(name);
  if (made != nullptr) {
    if (made->what != call.what || made->sums.size() != call.values.size()) {
      return Tell(std::move(done),
                  Differ(rank, call.what, call.values.size(),
                         made->ranks.front(), made->what, made->sums.size()));
    }
    // The shards may not have it yet.
    made_.push_back({std::move(done), AnswerOf(*made)});
    return {};
  }
  if (call.version < job.version) {
    return Tell(std::move(done), OwnAlone(call, rank, job));
  }
  const absl::Status may = CheckName(name, job);
  if (!may.ok()) return Tell(std::move(done), may);
  if (!open_.has_value()) open_ = Open{name, call.what, {}};
  const absl::Status fits = CheckFits(call, rank);
  if (!fits.ok()) {
    DeferredCalls calls = FailAll(fits);
    calls.Add(Tell(std::move(done), fits));
    return calls;
  }
  open_->what = call.what;
  Given& given = open_->given[rank];
  DeferredCalls calls;
  if (given.waiter.number != 0) {
    calls = Tell(std::move(given.waiter.done),
                 absl::CancelledError(
                     "another call of this rank has taken this one's place"));
  }
  given.values = call.values;
  *number = ++last_number_;
  given.waiter = {*number, call.session, now, std::move(done)};
  return calls;
}

// A worker whose row of the open round is committed waits for the others' rows:
// if one of those waits here for that worker, both would wait for ever. Where
// all who are here have committed, too, it is a reduction beside a round.
std::vector<int32_t> SmallReductions::WaitingFor(const Job& job) const {
  const auto gave = [&](const Member& member) {
    return open_->given.count(member.rank) > 0;
  };
  const bool holds_up =
      std::any_of(job.members.begin(), job.members.end(),
                  [&](const Member& m) { return gave(m) && !m.committed; });
  std::vector<int32_t> ranks;
  for (const Member& member : job.members) {
    if (gave(member) || member.first_round > open_->name.version ||
        (member.committed && holds_up)) {
      continue;
    }
    ranks.push_back(member.rank);
  }
  if (job.started) return ranks;
  std::set<int32_t> all(ranks.begin(), ranks.end());
  for (int32_t rank = 0; rank < job.workers; ++rank) {
    const bool in =
        std::any_of(job.members.begin(), job.members.end(),
                    [&](const Member& m) { return m.rank == rank; });
    if (!in && open_->given.count(rank) == 0) all.insert(rank);
  }
  return {all.begin(), all.end()};
}

bool SmallReductions::Due(const Job& job) const {
  if (!open_.has_value()) return false;
  // Its round has ended without those who are here.
  return job.version != open_->name.version || WaitingFor(job).empty();
}

bool SmallReductions::CloseIfDue(const Job& job) {
  if (!Due(job)) return false;
  Close(job);
  return true;
}

void SmallReductions::Close(const Job& job) {
  KeptReduction made;
  made.name = open_->name;
  made.what = open_->what;
  for (const auto& [rank, given] : open_->given) {
    made.sums.resize(given.values.size());
    for (size_t i = 0; i < given.values.size(); ++i) {
      made.sums[i] += given.values[i];
    }
    made.ranks.push_back(rank);
  }
  for (const Member& member : job.members) {
    if (open_->given.count(member.rank) == 0 &&
        member.first_round <= open_->name.version) {
      made.left_out.push_back(member.rank);
    }
  }
  for (auto& [rank, given] : open_->given) {
    if (given.waiter.number == 0) continue;
    made_.push_back({std::move(given.waiter.done), AnswerOf(made)});
  }
  open_.reset();
  Keep(std::move(made));
}

void SmallReductions::Keep(KeptReduction made) {
  // All who are in have had the sums of earlier versions, or they have gone on.
  const ReductionName& name = made.name;
  kept_.erase(std::remove_if(kept_.begin(), kept_.end(),
                             [&](const KeptReduction& old) {
                               return old.name.history != name.history ||
                                      old.name.version != name.version;
                             }),
              kept_.end());
  kept_.push_back(std::move(made));
  size_t num_values = 0;
  for (const KeptReduction& one : kept_) num_values += one.sums.size();
  while (kept_.size() > kMaxKept || num_values > kMaxValues) {
    num_values -= kept_.front().sums.size();
    kept_.erase(kept_.begin());
  }
}

std::vector<SmallReductions::Made> SmallReductions::TakeMade() {
  return std::exchange(made_, {});
}

void SmallReductions::Remove(uint64_t number) {
  if (!open_.has_value() || number == 0) return;
  for (auto& [rank, given] : open_->given) {
    if (given.waiter.number == number) given.waiter = Waiter();
  }
}

DeferredCalls SmallReductions::AskAgain(const Job& job, absl::Time now) {
  DeferredCalls calls;
  if (!open_.has_value() || Due(job)) return calls;
  ReduceAnswer waits;
  waits.waiting_for = WaitingFor(job);
  for (auto& [rank, given] : open_->given) {
    Waiter& waiter = given.waiter;
    if (waiter.number == 0 || now < waiter.since + kAskAgain) continue;
    calls.Add(Tell(std::move(waiter.done), waits));
    waiter = Waiter();
  }
  return calls;
}

DeferredCalls SmallReductions::FailSession(uint64_t session,
                                           const absl::Status& reason) {
  DeferredCalls calls;
  if (!open_.has_value()) return calls;
  for (auto& [rank, given] : open_->given) {
    if (given.waiter.number == 0 || given.waiter.session != session) continue;
    calls.Add(Tell(std::move(given.waiter.done), reason));
    given.waiter = Waiter();
  }
  return calls;
}

DeferredCalls SmallReductions::FailAll(const absl::Status& reason) {
  DeferredCalls calls;
  if (!open_.has_value()) return calls;
  for (auto& [rank, given] : open_->given) {
    if (given.waiter.number == 0) continue;
    calls.Add(Tell(std::move(given.waiter.done), reason));
  }
  open_.reset();
  return calls;
}

}  // namespace agg
