// Versions: pulled, waited for, and the round that combines it all.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker_client/client_core.h"
#include "worker_client/mark_wait.h"
#include "worker_client/pull_stream.h"

namespace agg {
namespace {

RoundOutcome Rewound(uint64_t round, uint64_t from, uint64_t to) {
  RoundOutcome outcome;
  outcome.round = round;
  outcome.version = to;
  outcome.kind = RoundOutcome::Kind::kRewound;
  outcome.message = absl::StrCat("the job has gone back from version ", from,
                                 " to version ", to);
  return outcome;
}

// What the caller hears. Who has read tensors of a version that was on its way
// (P43), and was given up, has to compute on the version as on any other one.
RoundOutcome Told(RoundOutcome outcome, const PullInto& into) {
  if (into.arrivals->withdrawn() && outcome.version == outcome.round + 1 &&
      outcome.kind != RoundOutcome::Kind::kRewound) {
    outcome.kind = RoundOutcome::Kind::kRewound;
    outcome.message = absl::StrCat("version ", outcome.version,
                                   " was given up on its way, and made anew");
  }
  return outcome;
}

// What the server cannot know.
void AddLost(const GrowingRow& row, RoundOutcome* outcome) {
  const std::string lost = row.lost();
  if (lost.empty()) return;
  absl::StrAppend(&outcome->message, outcome->message.empty() ? "" : "; ",
                  lost);
}

}  // namespace

absl::Status ClientCore::CheckAwaited(const JobView& view,
                                      uint64_t version) const {
  // No round waits for an observer, nor for a worker before its first one.
  if (options_.observer || view.published(version)) return absl::OkStatus();
  switch (membership_->standing(view)) {
    case Standing::kRewound:
      // The round that would publish it may wait for this very worker.
      if (version <= view.reply().first_round()) return absl::OkStatus();
      return membership_->CheckStanding(view);
    case Standing::kUnseeded:
      // This worker may be the one that has to seed.
      return membership_->CheckStanding(view);
    default:
      return absl::OkStatus();
  }
}

absl::Status ClientCore::Pull(uint64_t version, const PullInto& into) {
  const CallLimit limit(absl::Now() + options_.round_timeout, into.cancel);
  return membership_->Persist(limit, [&](const View& view) -> absl::Status {
    const absl::Status awaited = CheckAwaited(*view, version);
    if (!awaited.ok()) return awaited;
    return PullOnce(view, version, into, limit.deadline);
  });
}

PullSettings ClientCore::SettingsFor(const View& view) {
  PullSettings settings;
  settings.router = router_.get();
  settings.names = view->names();
  settings.channels = view->pull_channels();
  for (int i = 0; i < router_->num_shards(); ++i) {
    settings.regions.push_back(regions_.Get(*view, i));
  }
  settings.reconnect_window = options_.reconnect_window;
  settings.cancels = {view->over()};
  settings.copies = &copies_;
  return settings;
}

absl::Status ClientCore::AwaitPublished(const View& view, uint64_t version,
                                        const CallLimit& limit,
                                        absl::Time* end) {
  if (!view->published(version) && version > 0) {
    const absl::Status waited =
        session_.WaitRound(*view, version - 1, RowName(), limit).status();
    // So old that its outcome is no longer kept; the shards may still have it.
    if (!waited.ok() && !absl::IsOutOfRange(waited)) return waited;
  }
  // The wait and the transfer have limits of their own.
  *end = absl::Now() + options_.transfer_timeout;
  return absl::OkStatus();
}

absl::Status ClientCore::PullOnce(const View& view, uint64_t version,
                                  const PullInto& into, absl::Time deadline,
                                  bool wait_for_seed) {
  PullTarget target;
  target.epoch = view->epoch();
  target.version = version;
  target.dtype = PullDType(into);
  PullSettings settings = SettingsFor(view);
  if (into.cancel != nullptr) settings.cancels.push_back(into.cancel);
  settings.first = into.first;
  settings.arrivals = into.arrivals;
  absl::Time end = absl::Now() + options_.transfer_timeout;
  if (version == 0 && !view->published(version)) {
    // For the seed, which ends no round, the shards are asked at once, so one
    // limit is for the wait and the transfer.
    end = deadline + options_.transfer_timeout;
    if (wait_for_seed) settings.cancels.push_back(view->seed_wait());
  } else {
    const absl::Status awaited =
        AwaitPublished(view, version, {deadline, into.cancel}, &end);
    if (!awaited.ok()) return awaited;
  }
  absl::Status status =
      AwaitMarks(into.marks, "Pull",
                 std::min(end, absl::Now() + options_.transfer_timeout),
                 [&] { return FirstReason(settings.cancels); });
  if (!status.ok()) return status;
  into.arrivals->Begin({version, view->past(), view->epoch()});
  status = PullVersion(settings, target, into.targets(), end);
  if (!status.ok()) return status;
  if (!membership_->NoteHeld(*view, version)) return view->over()->status();
  version_ = version;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ClientCore::LatestVersion() {
  absl::StatusOr<uint64_t> version;
  const absl::Status status =
      membership_->Persist(absl::InfiniteFuture(), [&](const View& view) {
        version = session_.LatestVersion(*view);
        return version.status();
      });
  if (!status.ok()) return status;
  return version;
}

absl::StatusOr<uint64_t> ClientCore::PullLatest(const PullInto& into) {
  // A version may be gone before its pull begins, or be replaced during a pull
  // that is too slow; then the newest is pulled from its start.
  constexpr int kAttempts = 5;
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const absl::StatusOr<uint64_t> version = LatestVersion();
    if (!version.ok()) return version;
    status = Pull(*version, into);
    if (status.ok()) return version;
    if (!IsGone(status)) return status;
  }
  return status;
}

absl::StatusOr<RoundOutcome> ClientCore::Wait(uint64_t version,
                                              CancelSource* cancel) {
  const uint64_t round = version - 1;
  const CallLimit limit(absl::Now() + options_.round_timeout, cancel);
  RowName row;
  absl::StatusOr<RoundOutcome> outcome;
  const absl::Status status =
      membership_->Persist(limit, [&](const View& view) -> absl::Status {
        const absl::Status awaited = CheckAwaited(*view, version);
        if (!awaited.ok()) return awaited;
        {
          MutexLock lock(&custody_mutex_);
          row = custody_.Find(/*seed=*/false, round);
        }
        outcome = session_.WaitRound(*view, round, row, limit);
        return outcome.status();
      });
  if (!status.ok()) return status;
  MutexLock lock(&custody_mutex_);
  if (feedback_ != nullptr) feedback_->Settle(row, outcome->included);
  return outcome;
}

absl::StatusOr<RoundOutcome> ClientCore::FinishRound(const absl::Status& pushed,
                                                     const RowName& name,
                                                     GrowingRow* row,
                                                     const TripWish& wish) {
  const PullInto& into = *wish.into;
  RowName asked;  // without a session: not a row that all shards had
  asked.round = name.round;
  if (pushed.ok()) asked = name;
  absl::StatusOr<RoundOutcome> outcome = absl::UnknownError("not asked");
  if (!pushed.ok()) {
    outcome = pushed;
  } else if (wish.outcome.has_value()) {
    outcome = *wish.outcome;
    Audit(name, *outcome);
    if (wish.pulled) {
      AddLost(*row, &*outcome);
      return Told(*std::move(outcome), into);
    }
  } else {
    outcome = CommitRow(name, *wish.info, row, into.cancel);
  }
  if (!outcome.ok()) outcome = Missed(asked, outcome.status(), into.cancel);
  if (!outcome.ok()) return outcome;
  outcome = PullOutcome(*std::move(outcome), into);
  if (!outcome.ok()) return outcome;
  if (outcome->kind == RoundOutcome::Kind::kRewound) {
    Audit(asked, *outcome);
  }
  AddLost(*row, &*outcome);
  return Told(*std::move(outcome), into);
}

absl::StatusOr<RoundOutcome> ClientCore::Missed(const RowName& row,
                                                const absl::Status& status,
                                                CancelSource* cancel) {
  if (!membership_->fate().ok()) return status;
  RoundOutcome outcome;
  outcome.round = row.round;
  outcome.finished = membership_->finished();
  if (absl::IsOutOfRange(status)) {
    // So late that the server has dropped even the outcome: the row was not
    // used.
    outcome.message = "too late: the round's outcome is no longer kept";
    Audit(row, outcome);
    return outcome;
  }
  if (!absl::IsFailedPrecondition(status)) return status;
  const View view = membership_->view();
  const v1::JoinReply& reply = view->reply();
  const Standing standing = membership_->standing(*view);
  if (standing == Standing::kRewound) return outcome;  // PullOutcome says so
  if (standing == Standing::kGood && row.round < reply.first_round()) {
    outcome.message = std::string(status.message());
    return outcome;
  }
  if (standing != Standing::kNewSession) return status;
  // What the former session has committed may count. The round's end is waited
  // for only if that does not wait for the new session.
  if (row.session != 0 &&
      (reply.version() > row.round || reply.first_round() > row.round)) {
    const absl::StatusOr<RoundOutcome> known = Wait(row.round + 1, cancel);
    if (known.ok()) {
      Audit(row, *known);
      return known;
    }
  }
  outcome.message = "the lease had run out; this worker has joined again";
  return outcome;
}

absl::StatusOr<RoundOutcome> ClientCore::PullOutcome(RoundOutcome outcome,
                                                     const PullInto& into) {
  // Each time the job goes back, or this worker joins again, while its version
  // is pulled.
  constexpr int kAttempts = 5;
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const View view = membership_->view();
    const v1::JoinReply& reply = view->reply();
    const uint64_t joined = std::max(reply.version(), reply.first_round());
    // 0: not known, so that the newest is pulled.
    uint64_t version = outcome.version;
    if (version != 0 || version_ < reply.first_round()) {
      version = std::max(version, reply.first_round());
    }
    const Standing standing = membership_->standing(*view);
    if (standing == Standing::kRewound) {
      version = joined;
      outcome = Rewound(outcome.round, version_, version);
    } else if (standing == Standing::kNewSession) {
      version = std::max(version, joined);
    }
    status = version == 0 && outcome.kind != RoundOutcome::Kind::kRewound
                 ? absl::OutOfRangeError("not known")
                 : Pull(version, into);
    if (IsGone(status)) {
      const absl::StatusOr<uint64_t> latest = PullLatest(into);
      status = latest.status();
      if (latest.ok()) version = *latest;
    }
    if (status.ok()) {
      outcome.version = version;
      if (version >= membership_->view()->reply().first_round()) return outcome;
    } else if (membership_->view() == view) {
      return status;
    }
  }
  if (!status.ok()) return status;
  return outcome;
}

bool ClientCore::IsGone(const absl::Status& status) const {
  return absl::IsOutOfRange(status) ||
         (absl::IsAborted(status) && membership_->fate().ok());
}

}  // namespace agg
