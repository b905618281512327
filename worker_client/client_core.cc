// Rows: pushed, committed, and taken care of until their outcome is known.
#include "worker_client/client_core.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/agg.pb.h"
#include "worker_client/client_event.h"
#include "worker_client/commit_request.h"

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
      custody_(HoldsSlices(router_->plan())),
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
  MutexLock lock(&custody_mutex_);
  if (view.serial() <= custody_view_) return;
  custody_view_ = view.serial();
  const RowName& row = custody_.row();
  // Whether or not newer parameters were pulled since, and other views passed.
  const bool gone_back = view.num_rewinds() != custody_rewinds_;
  custody_rewinds_ = view.num_rewinds();
  if (row.session != view.session() ||
      (!row.seed && (standing != Standing::kGood || gone_back))) {
    custody_.Forget();
  }
  if (gone_back && feedback_ != nullptr) feedback_->Forget();
  custody_.NewEpoch(view.lives());
}

absl::StatusOr<std::vector<int>> ClientCore::Owed(const View& view,
                                                  const RowName& name) {
  MutexLock lock(&custody_mutex_);
  // Another thread is in a later view already: this one is over.
  if (custody_view_ != view->serial()) return Ended(*view);
  if (!(custody_.row() == name)) return std::vector<int>();
  return custody_.Owed(view->lives());
}

void ClientCore::TakeReceipts(const View& view, const RowName& name) {
  MutexLock lock(&custody_mutex_);
  for (const RowPusher::Receipt& receipt : pusher_->receipts()) {
    if (receipt.landed) regions_.Land(*view, name, receipt.shard);
    custody_.Acknowledge(receipt.shard, view->lives(), receipt.landed,
                         receipt.crc32c);
  }
}

std::set<int> ClientCore::DevicesFor(const GrowingRow& row) const {
  const bool is_open = !row.complete() && !row.any_on_device();
  return is_open ? last_devices_ : row.devices();
}

absl::Status ClientCore::PushOwed(const View& view, const RowName& name,
                                  GrowingRow* row, TripWish* wish) {
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
  if (MayTry(*view, *owed, wish)) {
    const absl::Status tried = TryTrip(view, meta, name, row, wish);
    if (!tried.ok()) return tried;
    if (wish->outcome.has_value()) return absl::OkStatus();
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
    MutexLock lock(&custody_mutex_);
    if (custody_.row() == name) custody_.NoteAbsent(row->absent_tensors());
  }
  return status;
}

absl::Status ClientCore::PushOnce(const View& view, uint64_t round,
                                  GrowingRow* row, RowName* name,
                                  TripWish* wish) {
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
    MutexLock custody_lock(&custody_mutex_);
    *name = custody_.Begin(/*seed=*/false, round, view->session());
    if (feedback_ != nullptr) feedback_->Begin(*name);
  }
  if (past) return absl::OkStatus();
  return PushOwed(view, *name, row, wish);
}

absl::Status ClientCore::PushRow(uint64_t round, GrowingRow* row,
                                 CancelSource* cancel, RowName* name,
                                 TripWish* wish) {
  name->round = round;
  if (!push_turn_.Take(cancel)) return cancel->status();
  const absl::Status status = membership_->Persist(
      {absl::InfiniteFuture(), cancel},
      [&](const View& view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_turn_) {
        return PushOnce(view, round, row, name, wish);
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
  const absl::Status standing = membership_->CheckStanding(*view);
  if (!standing.ok()) return standing;
  // Only the outcome is missing.
  if (IsPast(*view, row.round)) {
    return session_.WaitRound(*view, row.round, row, limit);
  }
  const absl::Status takes_part = CheckFirstRound(*view, row.round);
  if (!takes_part.ok()) return takes_part;
  if (gradient != nullptr) {
    if (!push_turn_.Take(limit.cancel)) return limit.cancelled();
    const absl::Status pushed = PushOwed(view, row, gradient);
    push_turn_.Give();
    if (!pushed.ok()) return pushed;
  }
  v1::CommitRequest request = CommitOf(row, info);
  {
    MutexLock lock(&custody_mutex_);
    // As in PushOwed: what was lost, was lost in a later epoch than the view's.
    if (custody_view_ != view->serial()) return view->over()->status();
    if (custody_.row() == row) {
      if (custody_.lost()) {
        return absl::DataLossError(absl::StrCat(
            ToString(view->names()[custody_.Owed(view->lives()).front()]),
            " has lost the row that it had acknowledged; Push again, and ",
            "Commit"));
      }
      const std::vector<uint32_t> sums = custody_.row_crc32c();
      request.mutable_row_crc32c()->Add(sums.begin(), sums.end());
      request.set_absent_tensors(custody_.absent_tensors());
      custody_.Commit();
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
  const absl::Status status =
      membership_->Persist(limit, [&](const View& view) {
        outcome = CommitOnce(view, row, info, gradient, limit);
        return outcome.status();
      });
  if (!status.ok()) return status;
  {
    MutexLock lock(&custody_mutex_);
    if (custody_.row() == row) custody_.Know();
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
    MutexLock lock(&custody_mutex_);
    if (custody_.row() == row) push.row_crc32c = custody_.row_crc32c();
    if (feedback_ != nullptr) feedback_->Settle(row, outcome.included);
  }
  audit_.Add(push);
}

RowName ClientCore::LastRow() const {
  const uint64_t round = version_;
  RowName row;
  {
    MutexLock lock(&custody_mutex_);
    row = custody_.Find(/*seed=*/false, round);
  }
  row.round = round;  // also if nothing was pushed
  return row;
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

}  // namespace agg
