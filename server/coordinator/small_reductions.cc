// Sums are taken by rank, so that they do not depend on who came first.
#include "server/coordinator/small_reductions.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

// Two texts and what is around them fit into a status.
constexpr size_t kMaxShown = 400;  // bytes

DeferredCalls Tell(SmallReductions::Done done,
                   absl::StatusOr<ReduceAnswer> answer) {
  DeferredCalls calls;
  calls.Add(
      [done = std::move(done), answer = std::move(answer)] { done(answer); });
  return calls;
}

// Of one giver; those of two have no order.
bool IsBefore(const GiverCall& one, const GiverCall& other) {
  return one.giver == other.giver && one.call < other.call;
}

bool BeginsCharacter(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
}

// A part of `text`, with the byte `at` in it, cut between characters.
std::string Part(const std::string& text, size_t at) {
  size_t begin = at < kMaxShown / 2 ? 0 : std::min(at, text.size()) - 100;
  while (begin > 0 && !BeginsCharacter(text[begin])) --begin;
  size_t end = std::min(text.size(), begin + kMaxShown);
  while (end < text.size() && !BeginsCharacter(text[end])) --end;
  return absl::StrCat(begin > 0 ? ".." : "", text.substr(begin, end - begin),
                      end < text.size() ? ".." : "");
}

absl::Status Differ(int32_t rank, const std::string& what, size_t count,
                    int32_t other, const std::string& others_what,
                    size_t others_count) {
  const size_t length = std::min(what.size(), others_what.size());
  size_t at = 0;
  while (at < length && what[at] == others_what[at]) ++at;
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", rank, " reduces ", Part(what, at), " (values: ", count,
      "), and rank ", other, " waits for ", Part(others_what, at),
      " (values: ", others_count,
      "); allowed: the same names, shapes, types and operation on all ranks, "
      "in one order"));
}

}  // namespace

absl::Status SmallReductions::Check(const ReduceCall& call) {
  if (call.name.call == 0) return FieldError("call", "0", "at least 1");
  // All who forget to draw one would be the same.
  if (call.name.giver == 0) {
    return FieldError("giver", "0", "a random number of this client's");
  }
  if (call.withdraw) return absl::OkStatus();
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

bool SmallReductions::Fits(const ReduceCall& call, const Given& given) {
  return given.what == call.what && given.values.size() == call.values.size();
}

absl::Status SmallReductions::CheckFits(const ReduceCall& call,
                                        int32_t rank) const {
  for (const auto& [other, given] : given_) {
    // What this rank gave before does not count: it was stopped, say.
    if (other == rank || Fits(call, given)) continue;
    return Differ(rank, call.what, call.values.size(), other, given.what,
                  given.values.size());
  }
  return absl::OkStatus();
}

void SmallReductions::NoteOther(int32_t rank, const std::string& what,
                                size_t count) {
  other_[rank] = absl::StrCat("rank ", rank, " has asked for ", Part(what, 0),
                              " (values: ", count, ") instead");
}

void SmallReductions::MakeWay(const ReduceCall& call, int32_t rank,
                              const Job& job, DeferredCalls* calls) {
  const auto later = [&](int32_t who) {
    return std::any_of(job.members.begin(), job.members.end(),
                       [&](const Member& m) {
                         return m.rank == who && m.first_round > job.version;
                       });
  };
  if (later(rank)) return;
  for (const auto& [other, given] : given_) {
    if (!Fits(call, given) && !later(other)) return;
  }
  for (auto next = given_.begin(); next != given_.end();) {
    auto& [other, given] = *next;
    if (Fits(call, given)) {
      ++next;
      continue;
    }
    NoteOther(other, given.what, given.values.size());
    if (given.waiter.number != 0) {
      calls->Add(Tell(std::move(given.waiter.done),
                      Differ(other, given.what, given.values.size(), rank,
                             call.what, call.values.size())));
    }
    next = given_.erase(next);
  }
}

void SmallReductions::Replace(Waiter* waiter, const char* why,
                              DeferredCalls* calls) {
  if (waiter->number != 0) {
    calls->Add(Tell(std::move(waiter->done), absl::CancelledError(why)));
  }
  *waiter = Waiter();
}

bool SmallReductions::AnswerMade(const ReduceCall& call, int32_t rank,
                                 absl::Time now, Done* done, uint64_t* number,
                                 DeferredCalls* calls) {
  if (kept_ == nullptr) return false;
  const auto last = kept_->last.find(rank);
  if (last == kept_->last.end() || last->second.giver != call.name.giver ||
      call.name.call > last->second.call) {
    return false;
  }
  const bool in_it =
      call.name.call == last->second.call &&
      std::binary_search(kept_->ranks.begin(), kept_->ranks.end(), rank);
  if (!in_it) {
    calls->Add(Tell(
        std::move(*done),
        absl::FailedPreconditionError(absl::StrCat(
            "reduction ", call.name.call, " of rank ", rank,
            " was made, and another one after it, so that its sums are not "
            "kept any more; reduce anew, on all ranks"))));
  } else if (confirmed_) {
    ReduceAnswer answer;
    answer.made = kept_;
    calls->Add(Tell(std::move(*done), std::move(answer)));
  } else {
    Pending& pending = pending_[rank];
    Replace(&pending.waiter, "another call of this rank has come", calls);
    *number = ++last_number_;
    pending = {kept_, serial_, {*number, call.session, now, std::move(*done)}};
  }
  return true;
}

void SmallReductions::Withdraw(const ReduceCall& call, int32_t rank,
                               DeferredCalls* calls) {
  GiverCall& last = withdrawn_[rank];
  if (last.giver != call.name.giver || last.call < call.name.call) {
    last = call.name;
  }
  const auto given = given_.find(rank);
  if (given == given_.end() || IsBefore(call.name, given->second.name)) return;
  Replace(&given->second.waiter, "the values are withdrawn", calls);
  given_.erase(given);
}

absl::Status SmallReductions::CheckOrder(const ReduceCall& call, int32_t rank,
                                         const Job& job) const {
  const auto given = given_.find(rank);
  if (given != given_.end() && IsBefore(call.name, given->second.name)) {
    return absl::CancelledError("a later call of this rank has come");
  }
  const auto withdrawn = withdrawn_.find(rank);
  if (withdrawn != withdrawn_.end() &&
      withdrawn->second.giver == call.name.giver &&
      call.name.call <= withdrawn->second.call) {
    return absl::CancelledError("the values of this call were withdrawn");
  }
  if (!job.seeded) {
    return absl::FailedPreconditionError(
        "the job has no parameters yet, and reduces nothing before; Seed "
        "first");
  }
  return absl::OkStatus();
}

DeferredCalls SmallReductions::Add(ReduceCall call, int32_t rank,
                                   const Job& job, absl::Time now, Done done,
                                   uint64_t* number) {
  AGG_DCHECK(Check(call).ok());
  *number = 0;
  DeferredCalls calls;
  if (AnswerMade(call, rank, now, &done, number, &calls)) return calls;
  if (call.withdraw) {
    Withdraw(call, rank, &calls);
    ReduceAnswer withdrawn;
    withdrawn.withdrawn = true;
    calls.Add(Tell(std::move(done), std::move(withdrawn)));
    return calls;
  }
  const absl::Status in_order = CheckOrder(call, rank, job);
  if (!in_order.ok()) return Tell(std::move(done), in_order);
  const auto former = given_.find(rank);
  // Not when the only one that waits asks again.
  const bool opens =
      given_.empty() || (given_.size() == 1 && former != given_.end() &&
                         (former->second.name.giver != call.name.giver ||
                          former->second.name.call != call.name.call));
  if (opens) other_.clear();
  if (former != given_.end()) {
    Replace(&former->second.waiter,
            "another call of this rank has taken its place", &calls);
    given_.erase(former);
  }
  // What is pending of this rank was of a call that it has given up.
  const auto pending = pending_.find(rank);
  if (pending != pending_.end()) {
    Replace(&pending->second.waiter, "another call of this rank has come",
            &calls);
    pending_.erase(pending);
  }
  MakeWay(call, rank, job, &calls);
  const absl::Status fits = CheckFits(call, rank);
  if (!fits.ok()) {
    NoteOther(rank, call.what, call.values.size());
    calls.Add(Tell(std::move(done), fits));
    return calls;
  }
  other_.erase(rank);
  *number = ++last_number_;
  given_[rank] = {call.name,
                  std::move(call.what),
                  std::move(call.values),
                  {*number, call.session, now, std::move(done)}};
  return calls;
}

// A worker whose row of the open round is committed waits for the others' rows:
// if one of those waits here for that worker, both would wait for ever. Where
// all who are here have committed, too, it is a reduction beside a round.
std::vector<int32_t> SmallReductions::WaitingFor(const Job& job) const {
  const auto gave = [&](const Member& member) {
    return given_.count(member.rank) > 0;
  };
  const bool holds_up =
      std::any_of(job.members.begin(), job.members.end(),
                  [&](const Member& m) { return gave(m) && !m.committed; });
  std::vector<int32_t> ranks;
  for (const Member& member : job.members) {
    if (gave(member) || member.first_round > job.version ||
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
    if (!in && given_.count(rank) == 0) all.insert(rank);
  }
  return {all.begin(), all.end()};
}

bool SmallReductions::Due(const Job& job) const {
  return !given_.empty() && WaitingFor(job).empty();
}

bool SmallReductions::CloseIfDue(const Job& job) {
  if (!Due(job)) return false;
  Close(job);
  return true;
}

void SmallReductions::Close(const Job& job) {
  auto made = std::make_shared<KeptReduction>();
  if (kept_ != nullptr) made->last = kept_->last;
  for (const auto& [rank, given] : given_) {
    made->sums.resize(given.values.size());
    for (size_t i = 0; i < given.values.size(); ++i) {
      made->sums[i] += given.values[i];
    }
    made->ranks.push_back(rank);
    made->last[rank] = given.name;
  }
  for (const Member& member : job.members) {
    if (given_.count(member.rank) == 0) {
      made->left_out.push_back(member.rank);
    }
  }
  ++serial_;
  for (auto& [rank, given] : given_) {
    if (given.waiter.number == 0) continue;  // it asks again
    pending_[rank] = {made, serial_, std::move(given.waiter)};
  }
  given_.clear();
  other_.clear();
  kept_ = std::move(made);
  confirmed_ = false;
}

void SmallReductions::SetKept(std::shared_ptr<const KeptReduction> kept) {
  kept_ = std::move(kept);
  confirmed_ = false;
  ++serial_;
}

bool SmallReductions::TakeUnconfirmed(uint64_t* serial) {
  if (asking_ || pending_.empty()) return false;
  *serial = serial_;
  return asking_ = true;
}

DeferredCalls SmallReductions::Confirm(uint64_t serial,
                                       const absl::Status& status) {
  asking_ = false;
  if (status.ok() && serial == serial_) confirmed_ = true;
  DeferredCalls calls;
  for (auto next = pending_.begin(); next != pending_.end();) {
    Pending& pending = next->second;
    if (pending.serial > serial) {
      ++next;
      continue;
    }
    if (status.ok()) {
      ReduceAnswer answer;
      answer.made = pending.made;
      calls.Add(Tell(std::move(pending.waiter.done), std::move(answer)));
    } else {
      calls.Add(Tell(std::move(pending.waiter.done), status));
    }
    next = pending_.erase(next);
  }
  return calls;
}

void SmallReductions::Remove(uint64_t number) {
  if (number == 0) return;
  for (const auto& [rank, given] : given_) {
    if (given.waiter.number != number) continue;
    given_.erase(rank);
    return;
  }
  for (const auto& [rank, pending] : pending_) {
    if (pending.waiter.number != number) continue;
    pending_.erase(rank);
    return;
  }
}

DeferredCalls SmallReductions::AskAgain(const Job& job, absl::Time now) {
  for (auto next = given_.begin(); next != given_.end();) {
    const Waiter& waiter = next->second.waiter;
    const bool silent = waiter.number == 0 && now >= waiter.since + kSilent;
    next = silent ? given_.erase(next) : std::next(next);
  }
  DeferredCalls calls;
  if (given_.empty() || Due(job)) return calls;
  ReduceAnswer waits;
  waits.waiting_for = WaitingFor(job);
  std::vector<std::string> notes;
  for (const int32_t rank : waits.waiting_for) {
    const auto other = other_.find(rank);
    // The first ones tell it; a job may have hundreds.
    if (other != other_.end() && notes.size() < 4) {
      notes.push_back(other->second);
    }
  }
  waits.note = absl::StrJoin(notes, "; ");
  for (auto& [rank, given] : given_) {
    Waiter& waiter = given.waiter;
    if (waiter.number == 0 || now < waiter.since + kAskAgain) continue;
    calls.Add(Tell(std::move(waiter.done), waits));
    waiter.number = 0;
    waiter.done = nullptr;
    waiter.since = now;
  }
  return calls;
}

DeferredCalls SmallReductions::FailSession(uint64_t session,
                                           const absl::Status& reason) {
  DeferredCalls calls;
  const auto fail = [&](auto* entries) {
    for (auto next = entries->begin(); next != entries->end();) {
      Waiter& waiter = next->second.waiter;
      if (waiter.session != session) {
        ++next;
        continue;
      }
      if (waiter.number != 0) calls.Add(Tell(std::move(waiter.done), reason));
      next = entries->erase(next);
    }
  };
  fail(&given_);
  fail(&pending_);
  return calls;
}

DeferredCalls SmallReductions::FailAll(const absl::Status& reason) {
  DeferredCalls calls;
  const auto fail = [&](auto* entries) {
    for (auto& [rank, entry] : *entries) {
      if (entry.waiter.number == 0) continue;
      calls.Add(Tell(std::move(entry.waiter.done), reason));
    }
    entries->clear();
  };
  fail(&given_);
  fail(&pending_);
  other_.clear();
  // A process that is new does not have it yet.
  confirmed_ = false;
  return calls;
}

}  // namespace agg
