// Versions: pulled, waited for, and the round that combines it all.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker_client/client_core.h"
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

absl::Status ClientCore::Pull(uint64_t version,
                              absl::Span<const MutableTensorView> parameters,
                              Precision precision) {
  const absl::StatusOr<std::vector<MutableTensorView>> bound =
      router_.Bind(parameters);
  if (!bound.ok()) return bound.status();
  const absl::Time deadline = absl::Now() + options_.round_timeout;
  return membership_->Persist(deadline, [&](const View& view) -> absl::Status {
    const absl::Status awaited = CheckAwaited(*view, version);
    if (!awaited.ok()) return awaited;
    return PullOnce(view, version, *bound, precision, deadline);
  });
}

absl::Status ClientCore::PullOnce(const View& view, uint64_t version,
                                  const std::vector<MutableTensorView>& bound,
                                  Precision precision, absl::Time deadline,
                                  bool wait_for_seed) {
  PullTarget target;
  target.epoch = view->epoch();
  target.version = version;
  target.dtype = precision == Precision::kFull ? DType::kF32 : job_.pull_dtype;
  PullSettings settings;
  settings.router = &router_;
  settings.names = view->names();
  settings.channels = view->pull_channels();
  settings.reconnect_window = options_.reconnect_window;
  settings.cancels = {view->over()};
  absl::Time end = absl::Now() + options_.transfer_timeout;
  if (!view->published(version)) {
    // The wait and the transfer have limits of their own. For the seed, which
    // ends no round, the shards are asked at once, so one limit is for both.
    if (version == 0) {
      end = deadline + options_.transfer_timeout;
      if (wait_for_seed) settings.cancels.push_back(view->seed_wait());
    } else {
      const absl::Status waited =
          session_.WaitRound(*view, version - 1, RowName(), deadline).status();
      // So old that its outcome is no longer kept; the shards may still have
      // it.
      if (!waited.ok() && !absl::IsOutOfRange(waited)) return waited;
      end = absl::Now() + options_.transfer_timeout;
    }
  }
  const absl::Status status = PullVersion(settings, target, bound, end);
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

absl::StatusOr<uint64_t> ClientCore::PullLatest(
    absl::Span<const MutableTensorView> parameters, Precision precision) {
  // A version may be gone before its pull begins, or be replaced during a pull
  // that is too slow; then the newest is pulled from its start.
  constexpr int kAttempts = 5;
  absl::Status status;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const absl::StatusOr<uint64_t> version = LatestVersion();
    if (!version.ok()) return version;
    status = Pull(*version, parameters, precision);
    if (status.ok()) return version;
    if (!IsGone(status)) return status;
  }
  return status;
}

absl::StatusOr<RoundOutcome> ClientCore::Wait(uint64_t version) {
  const uint64_t round = version - 1;
  const absl::Time deadline = absl::Now() + options_.round_timeout;
  absl::StatusOr<RoundOutcome> outcome;
  const absl::Status status =
      membership_->Persist(deadline, [&](const View& view) -> absl::Status {
        const absl::Status awaited = CheckAwaited(*view, version);
        if (!awaited.ok()) return awaited;
        RowName row;
        {
          MutexLock lock(&custody_mutex_);
          row = custody_.Find(/*seed=*/false, round);
        }
        outcome = session_.WaitRound(*view, round, row, deadline);
        return outcome.status();
      });
  if (!status.ok()) return status;
  return outcome;
}

absl::StatusOr<RoundOutcome> ClientCore::PushPull(
    absl::Span<const TensorView> gradient, const PushInfo& info,
    absl::Span<const MutableTensorView> parameters) {
  const absl::StatusOr<Bound> bound = BindRow(gradient, job_.push_dtype);
  if (!bound.ok()) return bound.status();
  RowName row;
  row.round = version_;
  const absl::StatusOr<RowName> pushed = PushRow(row.round, *bound);
  absl::StatusOr<RoundOutcome> outcome;
  if (pushed.ok()) {
    row = *pushed;
    outcome = CommitRow(row, info, &*bound);
  } else {
    outcome = pushed.status();
  }
  if (!outcome.ok()) outcome = Missed(row, outcome.status());
  if (!outcome.ok()) return outcome;
  outcome = PullOutcome(*std::move(outcome), parameters);
  if (outcome.ok() && outcome->kind == RoundOutcome::Kind::kRewound) {
    Audit(row, *outcome);
  }
  return outcome;
}

absl::StatusOr<RoundOutcome> ClientCore::Missed(const RowName& row,
                                                const absl::Status& status) {
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
    const absl::StatusOr<RoundOutcome> known = Wait(row.round + 1);
    if (known.ok()) {
      Audit(row, *known);
      return known;
    }
  }
  outcome.message = "the lease had run out; this worker has joined again";
  return outcome;
}

absl::StatusOr<RoundOutcome> ClientCore::PullOutcome(
    RoundOutcome outcome, absl::Span<const MutableTensorView> parameters) {
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
                 : Pull(version, parameters, Precision::kJob);
    if (IsGone(status)) {
      const absl::StatusOr<uint64_t> latest =
          PullLatest(parameters, Precision::kJob);
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
