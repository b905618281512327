// Rows: pushed, committed, and taken care of until their outcome is known. Also
// pulls, reductions, and the seed.
#include "worker_client/client_core.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/types/span.h"
#include "kernels/narrow_float.h"
#include "proto/agg.pb.h"
#include "proto/shard_plan.h"
#include "server/base/field_error.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "worker_client/client_event.h"
#include "worker_client/frame_source.h"
#include "worker_client/pull_stream.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"

namespace agg {

namespace {

std::vector<bool> HoldsSlices(const ShardPlan& plan) {
  std::vector<bool> holds;
  for (const auto& slices : plan.slices_of_shard) {
    holds.push_back(!slices.empty());
  }
  return holds;
}

// The round had ended when the epoch of `view` began.
bool IsPast(const JobView& view, uint64_t round) {
  return view.serial() > 0 && view.reply().seeded() &&
         view.reply().version() > round;
}

// Why the view is over, which somebody knows.
absl::Status Ended(const JobView& view) {
  const absl::Status over = view.over()->status();
  return over.ok() ? absl::UnavailableError("the epoch has ended") : over;
}

// From the system, since two processes must not draw the same; never 0.
uint64_t DrawGiver() {
  std::random_device draw;
  return uint64_t{draw()} << 32 | draw() | 1;
}

// How long a reduction that is given up waits for the server's word.
constexpr absl::Duration kWithdrawTimeout = absl::Seconds(2);
constexpr size_t kMaxShown = 200;  // bytes

std::string WaitText(const std::string& what, const std::vector<int>& ranks,
                     const std::string& note) {
  size_t end = std::min(what.size(), kMaxShown);
  // Not in the middle of a character.
  while (end > 0 && end < what.size() && (what[end] & 0xC0) == 0x80) --end;
  return absl::StrCat(
      "the reduction of ", what.substr(0, end), end < what.size() ? ".." : "",
      " waits for rank", ranks.size() == 1 ? " " : "s ",
      absl::StrJoin(ranks, ", "), note.empty() ? "" : "; ", Shown(note));
}

// A session that began while a round was open is in from a later one on.
absl::Status CheckFirstRound(const JobView& view, uint64_t round) {
  const uint64_t first = view.reply().first_round();
  if (round >= first) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this worker takes part from round ", first,
                   "; Pull version ", first, " and compute on that"));
}

}  // namespace

ClientCore::ClientCore(const ClientOptions& options,
                       std::unique_ptr<Membership> membership,
                       ShardRouter router)
    : options_(options),
      membership_(std::move(membership)),
      session_(options_, membership_.get()),
      router_(std::make_shared<const ShardRouter>(std::move(router))),
      copies_(options_.copy_threads),
      regions_(options_, router_.get(), &copies_, &devices_),
      job_(Describe(*membership_->view(), &regions_)),
      trip_shards_(TripShards(*router_, job_.push_dtype)),
      pipelined_shards_(PipelinedTripShards(*router_)),
      audit_(options_.observer ? "" : options_.audit_log,
             [this](const std::string& error) {
               if (options_.on_event == nullptr) return;
               options_.on_event({ClientEvent::Kind::kAuditLog, 0, error});
             }),
      version_(membership_->view()->reply().version()),
      giver_(DrawGiver()),
      ledger_(HoldsSlices(router_->plan())),
      feedback_(MakeErrorFeedback(
          options_.observer ? Manifest() : router_->manifest(), job_.push_dtype,
          options_.error_feedback)) {}

absl::Status ClientCore::CheckPushes() const {
  if (!options_.observer) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "observers only pull; Connect with observer = false and a rank");
}

void ClientCore::CatchUp(const JobView& view) {
  const Standing standing = membership_->standing(view);
  MutexLock lock(&ledger_mutex_);
  if (view.serial() <= ledger_view_) return;
  ledger_view_ = view.serial();
  const RowName& row = ledger_.row();
  // Whether or not newer parameters were pulled since, and other views passed.
  const bool gone_back = view.num_rewinds() != ledger_rewinds_;
  ledger_rewinds_ = view.num_rewinds();
  if (row.session != view.session() ||
      (!row.seed && (standing != Standing::kGood || gone_back))) {
    ledger_.Forget();
  }
  if (gone_back && feedback_ != nullptr) feedback_->Forget();
  ledger_.NewEpoch(view.lives());
}

absl::StatusOr<std::vector<int>> ClientCore::Owed(const View& view,
                                                  const RowName& name) {
  MutexLock lock(&ledger_mutex_);
  // Another thread is in a later view already: this one is over.
  if (ledger_view_ != view->serial()) return Ended(*view);
  if (!(ledger_.row() == name)) return std::vector<int>();
  return ledger_.Owed(view->lives());
}

void ClientCore::TakeReceipts(const View& view, const RowName& name) {
  MutexLock lock(&ledger_mutex_);
  for (const RowPusher::Receipt& receipt : pusher_->receipts()) {
    if (receipt.landed) regions_.Land(*view, name, receipt.shard);
    ledger_.Acknowledge(receipt.shard, view->lives(), receipt.landed,
                        receipt.crc32c);
  }
}

std::set<int> ClientCore::DevicesFor(const GrowingRow& row) const {
  const bool is_open = !row.complete() && !row.any_on_device();
  return is_open ? last_devices_ : row.devices();
}

absl::Status ClientCore::PushOwed(const View& view, const RowName& name,
                                  GrowingRow* row, TripRequest* requested) {
  absl::StatusOr<std::vector<int>> owed = Owed(view, name);
  if (!owed.ok()) return owed.status();
  if (owed->empty()) return view->over()->status();
  if (pusher_view_ != view) {
    pusher_ = nullptr;  // before the view whose channels it has
    pusher_view_ = view;
    pusher_ = std::make_unique<RowPusher>(
        router_.get(), view->names(), view->push_channels(),
        options_.reconnect_window, view->over(), feedback_.get());
  }
  v1::FrameMeta meta;
  meta.set_epoch(view->epoch());
  meta.set_session(name.session);
  meta.set_round(name.round);
  meta.set_kind(name.seed ? v1::SEED : v1::GRADIENT);
  meta.set_attempt(name.attempt);
  if (MayTry(*view, *owed, requested)) {
    AGG_RETURN_IF_ERROR(TryTrip(view, meta, name, row, requested));
    if (requested->outcome.has_value()) return absl::OkStatus();
    owed = Owed(view, name);
    if (!owed.ok()) return owed.status();
    if (owed->empty()) return view->over()->status();
  }
  const ShardRegions::Placed placed =
      regions_.Begin(*view, name, *owed, DevicesFor(*row));
  const absl::Status status = pusher_->Push(row, meta, *owed, placed.regions,
                                            options_.transfer_timeout);
  if (row->complete() && row->dtype() == job_.push_dtype) {
    last_devices_ = row->devices();
  }
  TakeReceipts(view, name);
  if (row->complete()) {
    MutexLock lock(&ledger_mutex_);
    if (ledger_.row() == name) ledger_.NoteAbsent(row->absent_tensors());
  }
  return status;
}

absl::Status ClientCore::PushOnce(const View& view, uint64_t round,
                                  GrowingRow* row, RowName* name,
                                  TripRequest* requested) {
  CatchUp(*view);
  absl::Status status = membership_->CheckStanding(*view);
  const bool past = IsPast(*view, round);
  if (status.ok() && !past) status = CheckFirstRound(*view, round);
  if (!status.ok()) return status;
  // Another thread has pulled in the new session meanwhile.
  if (name->session != 0 && name->session != view->session()) {
    return absl::FailedPreconditionError(
        "the lease ran out during the push, and this worker has joined again; "
        "compute on what was pulled since");
  }
  if (name->session == 0) {
    MutexLock ledger_lock(&ledger_mutex_);
    *name = ledger_.Begin(/*seed=*/false, round, view->session());
    if (feedback_ != nullptr) feedback_->Begin(*name);
  }
  if (past) return absl::OkStatus();
  return PushOwed(view, *name, row, requested);
}

absl::Status ClientCore::PushRow(uint64_t round, GrowingRow* row,
                                 CancelSource* cancel, RowName* name,
                                 TripRequest* requested) {
  name->round = round;
  if (!push_turn_.Take(cancel)) return cancel->status();
  const absl::Status status = membership_->Persist(
      {absl::InfiniteFuture(), cancel},
      [&](const View& view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_turn_) {
        return PushOnce(view, round, row, name, requested);
      });
  push_turn_.Give();
  return status;
}

absl::StatusOr<RoundOutcome> ClientCore::CommitOnce(const View& view,
                                                    const RowName& row,
                                                    const PushInfo& info,
                                                    GrowingRow* gradient,
                                                    const CallLimit& limit) {
  CatchUp(*view);
  AGG_RETURN_IF_ERROR(membership_->CheckStanding(*view));
  // Only the outcome is missing.
  if (IsPast(*view, row.round)) {
    return session_.WaitRound(*view, row.round, row, limit);
  }
  AGG_RETURN_IF_ERROR(CheckFirstRound(*view, row.round));
  if (gradient != nullptr) {
    if (!push_turn_.Take(limit.cancel)) return limit.cancelled();
    const absl::Status pushed = PushOwed(view, row, gradient);
    push_turn_.Give();
    if (!pushed.ok()) return pushed;
  }
  v1::CommitRequest request = CommitOf(row, info);
  {
    MutexLock lock(&ledger_mutex_);
    // As in PushOwed: what was lost, was lost in a later epoch than the view's.
    if (ledger_view_ != view->serial()) return view->over()->status();
    if (ledger_.row() == row) {
      if (ledger_.lost()) {
        return absl::DataLossError(absl::StrCat(
            ToString(view->names()[ledger_.Owed(view->lives()).front()]),
            " has lost the row that it had acknowledged; Push again, and ",
            "Commit"));
      }
      const std::vector<uint32_t> sums = ledger_.row_crc32c();
      request.mutable_row_crc32c()->Add(sums.begin(), sums.end());
      request.set_absent_tensors(ledger_.absent_tensors());
      ledger_.Commit();
    }
  }
  return session_.Commit(*view, std::move(request), limit, info.traceparent);
}

absl::StatusOr<RoundOutcome> ClientCore::CommitRow(const RowName& row,
                                                   const PushInfo& info,
                                                   GrowingRow* gradient,
                                                   CancelSource* cancel) {
  const CallLimit limit(absl::Now() + options_.round_timeout, cancel);
  absl::StatusOr<RoundOutcome> outcome;
  AGG_RETURN_IF_ERROR(membership_->Persist(limit, [&](const View& view) {
    outcome = CommitOnce(view, row, info, gradient, limit);
    return outcome.status();
  }));
  {
    MutexLock lock(&ledger_mutex_);
    if (ledger_.row() == row) ledger_.Know();
  }
  Audit(row, *outcome);
  return outcome;
}

void ClientCore::Audit(const RowName& row, const RoundOutcome& outcome) {
  if (row.session == 0) return;  // nothing was pushed
  AuditedPush push;
  push.rank = options_.rank;
  push.row = row;
  push.rewound = outcome.kind == RoundOutcome::Kind::kRewound;
  push.included = outcome.included;
  push.version = outcome.version;
  push.made = outcome.made;
  {
    MutexLock lock(&ledger_mutex_);
    if (ledger_.row() == row) push.row_crc32c = ledger_.row_crc32c();
    if (feedback_ != nullptr) feedback_->Settle(row, outcome.included);
  }
  audit_.Add(push);
}

RowName ClientCore::LastRow() const {
  const uint64_t round = version_;
  RowName row;
  {
    MutexLock lock(&ledger_mutex_);
    row = ledger_.Find(/*seed=*/false, round);
  }
  row.round = round;  // also if nothing was pushed
  return row;
}

absl::StatusOr<Reduction> ClientCore::ReduceOnce(const View& view,
                                                 const ReductionCall& call,
                                                 const CallLimit& limit,
                                                 WaitReport* report,
                                                 std::string* waits) {
  const Standing standing = membership_->standing(*view);
  // A new session of the rank gives what the former one has given.
  if (standing == Standing::kRewound || standing == Standing::kUnseeded) {
    AGG_RETURN_IF_ERROR(
        membership_->CheckStanding(*view));  // another thread may have pulled
  }
  while (true) {
    AGG_ASSIGN_OR_RETURN(const CoordinatorSession::Reduced reduced,
                         session_.Reduce(*view, call, limit));
    if (reduced.withdrawn) {
      return absl::InternalError("the values of a reduction were taken back");
    }
    if (reduced.waiting_for.empty()) return reduced.made;
    *waits = WaitText(call.what, reduced.waiting_for, reduced.note);
    report->Say(*waits, absl::Now());
  }
}

absl::StatusOr<Reduction> ClientCore::Withdraw(const ReductionCall& call) {
  ReductionCall back = call;
  back.withdraw = true;
  AGG_ASSIGN_OR_RETURN(
      const CoordinatorSession::Reduced reduced,
      session_.Reduce(*membership_->view(), back,
                      CallLimit(absl::Now() + kWithdrawTimeout)));
  if (reduced.withdrawn) return absl::CancelledError("taken back");
  return reduced.made;
}

// The same values are given again, by the same name, until the sums are there.
absl::StatusOr<Reduction> ClientCore::Reduce(const std::string& what,
                                             const std::vector<double>& values,
                                             CancelSource* cancel) {
  AGG_RETURN_IF_ERROR(CheckPushes());
  if (ValidUtf8(what) != what) {
    return FieldError("what", Shown(what.substr(0, kMaxShown)), "UTF-8");
  }
  const CallLimit limit(absl::Now() + options_.round_timeout, cancel);
  WaitReport report(options_, ClientEvent::Kind::kWaiting);
  std::string waits;
  absl::StatusOr<Reduction> made = absl::UnknownError("not asked");
  if (!reduce_turn_.Take(cancel)) return cancel->status();
  const ReductionCall call = {giver_, ++num_reductions_, what, values};
  const absl::Status status =
      membership_->Persist(limit, [&](const View& view) {
        made = ReduceOnce(view, call, limit, &report, &waits);
        return made.status();
      });
  // Refused values were not taken, and a session that is over has none. Who has
  // to go back gives nothing; what was made before holds for it, too.
  if (absl::IsDeadlineExceeded(status) || absl::IsCancelled(status) ||
      absl::IsUnavailable(status) || absl::IsFailedPrecondition(status)) {
    made = Withdraw(call);
  }
  reduce_turn_.Give();
  if (status.ok() || made.ok()) return made;
  if (!absl::IsDeadlineExceeded(status) || waits.empty()) return status;
  return absl::DeadlineExceededError(absl::StrCat(
      status.message(), "; ", waits,
      absl::IsCancelled(made.status())
          ? "; its values are taken back"
          : "; whether its values are in it, the server did not say"));
}

absl::Status ClientCore::Leave() {
  if (!membership_->BeginToLeave()) return absl::OkStatus();
  const View view = membership_->view();
  absl::Status status;
  // Between two epochs nobody is there to hear it: the lease runs out.
  if (!options_.observer && view->over()->status().ok()) {
    status = session_.Leave(*view);
  }
  membership_->End(absl::CancelledError("this client has left the job"));
  return status;
}

// Versions: pulled, waited for, and the round that combines it all.

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
    AGG_RETURN_IF_ERROR(CheckAwaited(*view, version));
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
    AGG_RETURN_IF_ERROR(
        AwaitPublished(view, version, {deadline, into.cancel}, &end));
  }
  AGG_RETURN_IF_ERROR(
      AwaitMarks(into.marks, "Pull",
                 std::min(end, absl::Now() + options_.transfer_timeout),
                 [&] { return FirstReason(settings.cancels); }));
  into.arrivals->Begin({version, view->past(), view->epoch()});
  AGG_RETURN_IF_ERROR(PullVersion(settings, target, into.targets(), end));
  if (!membership_->NoteHeld(*view, version)) return view->over()->status();
  version_ = version;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ClientCore::LatestVersion() {
  absl::StatusOr<uint64_t> version;
  AGG_RETURN_IF_ERROR(
      membership_->Persist(absl::InfiniteFuture(), [&](const View& view) {
        version = session_.LatestVersion(*view);
        return version.status();
      }));
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
  AGG_RETURN_IF_ERROR(
      membership_->Persist(limit, [&](const View& view) -> absl::Status {
        AGG_RETURN_IF_ERROR(CheckAwaited(*view, version));
        {
          MutexLock lock(&ledger_mutex_);
          row = ledger_.Find(/*seed=*/false, round);
        }
        outcome = session_.WaitRound(*view, round, row, limit);
        return outcome.status();
      }));
  MutexLock lock(&ledger_mutex_);
  if (feedback_ != nullptr) feedback_->Settle(row, outcome->included);
  return outcome;
}

absl::StatusOr<RoundOutcome> ClientCore::FinishRound(
    const absl::Status& pushed, const RowName& name, GrowingRow* row,
    const TripRequest& requested) {
  const PullInto& into = *requested.into;
  RowName asked;  // without a session: not a row that all shards had
  asked.round = name.round;
  if (pushed.ok()) asked = name;
  absl::StatusOr<RoundOutcome> outcome = absl::UnknownError("not asked");
  if (!pushed.ok()) {
    outcome = pushed;
  } else if (requested.outcome.has_value()) {
    outcome = *requested.outcome;
    Audit(name, *outcome);
    if (requested.pulled) {
      AddLost(*row, &*outcome);
      return Told(*std::move(outcome), into);
    }
  } else {
    outcome = CommitRow(name, *requested.info, row, into.cancel);
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

// Where rows and versions lie: in the caller's memory and in the shards'.

absl::StatusOr<PullInto> ClientCore::IntoOf(
    absl::Span<const MutableTensorView> parameters) {
  AGG_ASSIGN_OR_RETURN(auto bound, router_->Bind(parameters));
  PullInto into;
  into.bound = std::move(bound);
  AGG_ASSIGN_OR_RETURN(into.device_of, devices_.DevicesOf(into.bound));
  into.devices = &devices_;
  AGG_RETURN_IF_ERROR(MarkTargets(&into));
  return into;
}

absl::Status ClientCore::MarkTargets(PullInto* into) {
  AGG_ASSIGN_OR_RETURN(const auto marks, devices_.MarksOf(into->device_of));
  into->marks.clear();
  for (const auto& [device, mark] : marks) into->marks.push_back(mark);
  return absl::OkStatus();
}

namespace {

std::vector<std::string> TransportsOf(const JobView& view) {
  std::vector<std::string> transports;
  for (size_t i = 0; i < view.names().size(); ++i) {
    transports.push_back(view.transport(i));
  }
  return transports;
}

}  // namespace

JobDescription ClientCore::Describe(const JobView& view,
                                    ShardRegions* regions) {
  const v1::JoinReply& reply = view.reply();
  JobDescription job;
  job.job = reply.job();
  job.rule = reply.rule();
  job.scope = reply.scope();
  job.step_scale = reply.step_scale();
  job.optimizer = reply.optimizer();
  job.workers = reply.workers();
  job.shards.assign(reply.shards().begin(), reply.shards().end());
  for (size_t i = 0; i < view.names().size(); ++i) {
    regions->Get(view, static_cast<int>(i));
  }
  job.transports = TransportsOf(view);
  job.push_dtype = static_cast<DType>(reply.push_dtype());
  job.pull_dtype = static_cast<DType>(reply.pull_dtype());
  return job;
}

JobDescription ClientCore::JobNow() const {
  JobDescription job = job_;
  job.transports = TransportsOf(*membership_->view());
  return job;
}

absl::StatusOr<std::vector<const char*>> ClientCore::RowSlices() {
  if (options_.observer) {
    return absl::FailedPreconditionError(
        "observers only pull; use memory of your own");
  }
  const View view = membership_->view();
  std::vector<std::shared_ptr<const MappedRegions>> owners;
  std::vector<const char*> slices(router_->plan().slices.size(), nullptr);
  for (int shard = 0; shard < router_->num_shards(); ++shard) {
    if (router_->plan().slices_of_shard[shard].empty()) continue;
    owners.push_back(regions_.Get(*view, shard));
    if (owners.back()->row == nullptr) {
      return absl::FailedPreconditionError(absl::StrCat(
          ToString(view->names()[shard]),
          " shares no row with this worker; use memory of your own"));
    }
    for (const int32_t slice : router_->plan().slices_of_shard[shard]) {
      slices[slice] = owners.back()->row->Address(slice);
    }
  }
  MutexLock lock(&ledger_mutex_);
  for (auto& owner : owners) {
    if (std::find(row_owners_.begin(), row_owners_.end(), owner) ==
        row_owners_.end()) {
      row_owners_.push_back(std::move(owner));
    }
  }
  return slices;
}

absl::StatusOr<std::vector<MutableTensorView>> ClientCore::RowTensors() {
  if (job_.push_dtype != DType::kF32) {
    return absl::FailedPreconditionError(
        "the job's rows are not float32; use RowViews, or memory of your own");
  }
  AGG_ASSIGN_OR_RETURN(const std::vector<const char*> slices, RowSlices());
  AGG_ASSIGN_OR_RETURN(const std::vector<const float*> places,
                       TensorPlaces(*router_, slices));
  std::vector<MutableTensorView> views;
  for (size_t i = 0; i < places.size(); ++i) {
    // The worker's own row: only its versions are read-only.
    views.emplace_back(absl::MakeSpan(
        const_cast<float*>(places[i]),
        static_cast<size_t>(NumElements(router_->manifest().tensors[i]))));
  }
  return views;
}

absl::StatusOr<std::vector<RowView>> ClientCore::RowViews() {
  if (job_.push_dtype == DType::kI8) {
    return absl::FailedPreconditionError(
        "the job's rows are int8, and 256 elements share a scale; Push rounds "
        "float32 in memory of your own to where the row lies");
  }
  AGG_ASSIGN_OR_RETURN(const std::vector<const char*> slices, RowSlices());
  return RowViewsOf(*router_, job_.push_dtype, slices);
}

absl::StatusOr<std::unique_ptr<VersionView>> ClientCore::PullView(
    uint64_t version) {
  const CallLimit limit(absl::Now() + options_.round_timeout, nullptr);
  std::shared_ptr<const VersionHold> hold;
  AGG_RETURN_IF_ERROR(
      membership_->Persist(limit, [&](const View& view) -> absl::Status {
        absl::Status status = CheckAwaited(*view, version);
        absl::Time end;
        if (status.ok()) status = AwaitPublished(view, version, limit, &end);
        if (!status.ok()) return status;
        PullTarget target;
        target.epoch = view->epoch();
        target.version = version;
        AGG_ASSIGN_OR_RETURN(std::unique_ptr<VersionHold> held,
                             VersionHold::Take(SettingsFor(view), target, end));
        if (!membership_->NoteHeld(*view, version)) {
          return view->over()->status();
        }
        hold = std::move(held);
        return absl::OkStatus();
      }));
  AGG_ASSIGN_OR_RETURN(const std::vector<const float*> places,
                       TensorPlaces(*router_, hold->slices()));
  version_ = version;
  std::vector<TensorView> tensors;
  for (size_t i = 0; i < places.size(); ++i) {
    tensors.emplace_back(absl::MakeConstSpan(
        places[i],
        static_cast<size_t>(NumElements(router_->manifest().tensors[i]))));
  }
  return std::make_unique<VersionView>(version, std::move(tensors),
                                       [hold] { return hold->valid(); });
}

// The seed: pushed and committed by one worker, pulled by the others. Other
// rules hold here after a loss: a job that is unseeded has forgotten what was
// pushed.

namespace {

std::vector<TensorView> ConstViews(absl::Span<const MutableTensorView> views) {
  std::vector<TensorView> result;
  for (const MutableTensorView& view : views) {
    result.emplace_back(view.name,
                        absl::MakeConstSpan(view.data, view.num_elements));
  }
  return result;
}

// With "none" later versions are gradients: version 0 is all that there is of
// the parameters that workers begin with, and comes as it was seeded.
Precision PrecisionOfSeed(const JobDescription& job) {
  return job.optimizer == "none" ? Precision::kFull : Precision::kJob;
}

// Whether who pulls the seed narrowed gets what was seeded: a finite value that
// is infinite then would never train. (What is on a device is not looked at.)
absl::Status CheckFits(const GrowingRow& seed, const Manifest& manifest,
                       const JobDescription& job) {
  const DType pull_dtype = job.pull_dtype;
  if (pull_dtype == DType::kF32 || seed.any_on_device() ||
      PrecisionOfSeed(job) == Precision::kFull) {
    return absl::OkStatus();
  }
  const uint32_t limit =
      pull_dtype == DType::kF16 ? kF16OverflowBits : kBf16OverflowBits;
  for (size_t t = 0; t < seed.bound().size(); ++t) {
    const TensorView& view = seed.bound()[t];
    if (view.data == nullptr || view.dtype != DType::kF32) continue;
    const auto* const values = static_cast<const float*>(view.data);
    for (int64_t k = 0; k < view.num_elements; ++k) {
      const uint32_t bits = BitsOfFloat(values[k]) & 0x7fffffffu;
      if (bits < limit || bits >= 0x7f800000u) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("seed: element ", k, " of tensor ",
                       Quoted(manifest.tensors[t].name), " is ", values[k],
                       ", which the job's pull_dtype \"", DTypeName(pull_dtype),
                       "\" cannot hold; allowed: smaller values, or "
                       "pull_dtype \"f32\" in the job's configuration"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ClientCore::PushSeed(const View& view, GrowingRow* seed,
                                  RowName* row, uint64_t* row_epoch) {
  CatchUp(*view);
  // After a recovery version 0 may be there: then only the answer is missing.
  const bool pushes = view->serial() == 0 || !view->reply().seeded();
  PushTurnLock turn(&push_turn_);
  // An epoch that begins unseeded has forgotten what was pushed before, also
  // on shards that live: their receipts say nothing.
  if (row->session != view->session() ||
      (pushes && *row_epoch != view->epoch())) {
    MutexLock ledger_lock(&ledger_mutex_);
    *row = ledger_.Begin(/*seed=*/true, 0, view->session());
    *row_epoch = view->epoch();
  }
  return pushes ? PushOwed(view, *row, seed) : absl::OkStatus();
}

absl::StatusOr<RoundOutcome> ClientCore::SeedOnce(const View& view,
                                                  GrowingRow* seed,
                                                  RowName* row,
                                                  uint64_t* row_epoch) {
  AGG_RETURN_IF_ERROR(PushSeed(view, seed, row, row_epoch));
  v1::CommitRequest request;
  request.set_kind(v1::SEED);
  request.set_attempt(row->attempt);
  absl::StatusOr<RoundOutcome> outcome = session_.Commit(
      *view, std::move(request), absl::Now() + options_.round_timeout);
  if (outcome.ok() && !membership_->NoteHeld(*view, outcome->version)) {
    return view->over()->status();
  }
  return outcome;
}

absl::StatusOr<RoundOutcome> ClientCore::Seed(
    absl::Span<const TensorView> parameters) {
  GrowingRow seed(router_.get(), DType::kF32, &devices_);
  AGG_RETURN_IF_ERROR(CheckPushes());
  AGG_RETURN_IF_ERROR(seed.Give(parameters));
  AGG_RETURN_IF_ERROR(seed.Complete());
  AGG_RETURN_IF_ERROR(CheckFits(seed, router_->manifest(), job_));
  RowName row;
  uint64_t row_epoch = 0;
  absl::StatusOr<RoundOutcome> outcome;
  AGG_RETURN_IF_ERROR(
      membership_->Persist(absl::InfiniteFuture(), [&](const View& view) {
        outcome = SeedOnce(view, &seed, &row, &row_epoch);
        return outcome.status();
      }));
  version_ = outcome->version;
  MutexLock lock(&ledger_mutex_);
  if (ledger_.row() == row) ledger_.Know();
  return outcome;
}

absl::Status ClientCore::SeedOrPull(
    absl::Span<const MutableTensorView> parameters) {
  AGG_ASSIGN_OR_RETURN(PullInto into, IntoOf(parameters));
  PullArrivals arrivals(router_.get());
  into.arrivals = &arrivals;
  into.precision = PrecisionOfSeed(job_);
  while (true) {
    const View view = membership_->view();
    if (!view->seed_role()) {
      const absl::Status status = PullFirst(into);
      if (IsGone(status)) {
        return PullLatest(into).status();
      }
      // The wait ended because the seeder is gone, and this worker now has its
      // role: it goes on to Seed.
      if (status.ok() || !membership_->view()->seed_role() ||
          !membership_->fate().ok()) {
        return status;
      }
    }
    const absl::StatusOr<RoundOutcome> seeded = Seed(ConstViews(parameters));
    // All workers must start from equal values. Where parameters travel
    // narrowed, the others get rounded values, so the seeder pulls them, too.
    if (seeded.ok() && (job_.pull_dtype == DType::kF32 ||
                        into.precision == Precision::kFull)) {
      return absl::OkStatus();
    }
    if (seeded.ok() || absl::IsAlreadyExists(seeded.status())) {
      const absl::Status status = PullFirst(into);
      if (!IsGone(status)) return status;
      return PullLatest(into).status();
    }
    // The role may have gone to another worker when an epoch ended.
    if (membership_->view() == view || !membership_->fate().ok() ||
        membership_->view()->seed_role()) {
      return seeded.status();
    }
  }
}

absl::Status ClientCore::PullFirst(const PullInto& into) {
  const absl::Time deadline = absl::Now() + options_.round_timeout;
  return membership_->Persist(deadline, [&](const View& view) {
    return PullOnce(view, view->reply().first_round(), into, deadline,
                    /*wait_for_seed=*/true);
  });
}

// A round that is pushed, committed and pulled in one trip (P41), and what an
// ordinary round does with it.

std::vector<int> ClientCore::ShardsOfTrip(const JobView& view) {
  if (!trip_shards_.empty() || !view.reply().pipelined()) return trip_shards_;
  // In shared memory ordinary calls copy faster than a stream sends.
  const bool sends =
      std::any_of(pipelined_shards_.begin(), pipelined_shards_.end(),
                  [&](int shard) { return !regions_.Get(view, shard)->any(); });
  return sends ? pipelined_shards_ : std::vector<int>();
}

bool ClientCore::MayTry(const JobView& view, const std::vector<int>& owed,
                        const TripRequest* requested) {
  return requested != nullptr && pusher_->takes_trips() && !owed.empty() &&
         owed == ShardsOfTrip(view);
}

absl::Status ClientCore::AwaitDevices(const View& view, const GrowingRow& row,
                                      const PullInto& into) {
  const absl::Time deadline = absl::Now() + options_.transfer_timeout;
  // Who cancels the round cancels the row after the operation that pushes it.
  const auto cancelled = [&] {
    const absl::Status over = view->over()->status();
    return over.ok() ? row.cancelled() : over;
  };
  const absl::Status pushed =
      AwaitMarks(row.marks(), "Push", deadline, cancelled);
  // What the trip brings is written at once.
  return pushed.ok() ? AwaitMarks(into.marks, "Pull", deadline, cancelled)
                     : pushed;
}

absl::Status ClientCore::TryTrip(const View& view, const v1::FrameMeta& meta,
                                 const RowName& name, GrowingRow* row,
                                 TripRequest* requested) {
  const PullInto& into = *requested->into;
  AGG_RETURN_IF_ERROR(AwaitDevices(view, *row, into));
  PullTarget target;
  target.epoch = view->epoch();
  target.version = name.round + 1;
  target.dtype = PullDType(into);
  RoundTrip trip;
  trip.pipelined = view->reply().pipelined();
  PullOrigin origin{target.version, view->past(), view->epoch()};
  origin.published = !trip.pipelined;
  into.arrivals->Begin(origin);
  ParameterSink sink(router_.get(), into.targets(), target, into.arrivals);
  trip.sink = &sink;
  trip.commit = CommitOf(name, *requested->info);
  trip.commit.set_epoch(meta.epoch());
  trip.commit.set_session(meta.session());
  trip.commit.set_traceparent(requested->info->traceparent);
  trip.commit.set_absent_tensors(row->absent_tensors());
  trip.pull.set_epoch(meta.epoch());
  trip.pull.set_version(target.version);
  trip.pull.set_dtype(static_cast<v1::DType>(target.dtype));
  const std::vector<int> shards = ShardsOfTrip(*view);
  const ShardRegions::Placed placed =
      regions_.Begin(*view, name, shards, row->devices());
  const absl::Status status =
      pusher_->PushInOneTrip(row, meta, shards, placed.regions,
                             TripTimeout(options_, trip.pipelined), &trip);
  TakeReceipts(view, name);
  {
    // An ordinary Commit may follow.
    MutexLock lock(&ledger_mutex_);
    if (ledger_.row() == name) {
      ledger_.NoteAbsent(trip.commit.absent_tensors());
    }
  }
  if (status.ok()) NoteTrip(view, name, trip, requested);
  return absl::OkStatus();  // else ordinary calls go on
}

void ClientCore::NoteTrip(const View& view, const RowName& name,
                          const RoundTrip& trip, TripRequest* requested) {
  if (!trip.outcome.has_value()) return;
  requested->outcome = session_.Note(*view, *trip.outcome);
  const uint64_t version = name.round + 1;
  const bool makes_it = requested->outcome->version == version;
  // What has come of it is good in the next epoch, too.
  if (makes_it) {
    requested->into->arrivals->Begin({version, view->past(), view->epoch()});
  }
  {
    MutexLock lock(&ledger_mutex_);
    if (ledger_.row() == name) ledger_.Know();
  }
  // A version that came in an epoch that has ended is pulled again.
  requested->pulled =
      trip.pulled && makes_it && membership_->NoteHeld(*view, version);
  if (requested->pulled) version_ = version;
}

}  // namespace agg
