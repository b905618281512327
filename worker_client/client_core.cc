// Rows: pushed, committed, and taken care of until their outcome is known.
#include "worker_client/client_core.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/agg.pb.h"
#include "worker_client/client_event.h"

namespace agg {
namespace {

JobDescription Describe(const JobView& view) {
  const v1::JoinReply& reply = view.reply();
  JobDescription job;
  job.job = reply.job();
  job.rule = reply.rule();
  job.scope = reply.scope();
  job.step_scale = reply.step_scale();
  job.workers = reply.workers();
  job.shards.assign(reply.shards().begin(), reply.shards().end());
  for (size_t i = 0; i < view.names().size(); ++i) {
    job.transports.push_back(view.local(i) ? "unix" : "tcp");
  }
  job.push_dtype = static_cast<DType>(reply.push_dtype());
  job.pull_dtype = static_cast<DType>(reply.pull_dtype());
  return job;
}

std::vector<bool> HoldsSlices(const ShardPlan& plan) {
  std::vector<bool> holds;
  for (const auto& slices : plan.slices_of_shard) {
    holds.push_back(!slices.empty());
  }
  return holds;
}

v1::CommitRequest CommitOf(const RowName& row, const PushInfo& info) {
  v1::CommitRequest request;
  request.set_kind(v1::GRADIENT);
  request.set_round(row.round);
  request.set_attempt(row.attempt);
  request.set_examples(info.examples);
  request.set_accumulation(info.accumulation);
  if (info.micro_norm_squared_sum.has_value()) {
    request.set_micro_norm_squared_sum(*info.micro_norm_squared_sum);
  }
  if (info.loss.has_value()) request.set_loss(*info.loss);
  request.set_loss_scale(info.loss_scale);
  return request;
}

// The round had ended when the epoch of `view` began.
bool IsPast(const JobView& view, uint64_t round) {
  return view.serial() > 0 && view.reply().seeded() &&
         view.reply().version() > round;
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
      router_(std::move(router)),
      job_(Describe(*membership_->view())),
      audit_(options_.observer ? "" : options_.audit_log,
             [this](const std::string& error) {
               if (options_.on_event == nullptr) return;
               options_.on_event({ClientEvent::Kind::kAuditLog, 0, error});
             }),
      version_(membership_->view()->reply().version()),
      custody_(HoldsSlices(router_.plan())) {}

absl::StatusOr<ClientCore::Bound> ClientCore::BindRow(
    absl::Span<const TensorView> views, DType dtype) const {
  if (options_.observer) {
    return absl::FailedPreconditionError(
        "observers only pull; Connect with observer = false and a rank");
  }
  return router_.Bind(views, dtype);
}

void ClientCore::CatchUp(const JobView& view) {
  const Standing standing = membership_->standing(view);
  MutexLock lock(&custody_mutex_);
  if (view.serial() <= custody_view_) return;
  custody_view_ = view.serial();
  const RowName& row = custody_.row();
  if (row.session != view.session() ||
      (!row.seed && standing != Standing::kGood)) {
    custody_.Forget();
  }
  custody_.NewEpoch(view.lives());
}

absl::Status ClientCore::PushOwed(const View& view, const RowName& row,
                                  const Bound& bound, DType dtype) {
  std::vector<int> owed;
  {
    MutexLock lock(&custody_mutex_);
    // Another thread is in a later view already: this one is over.
    if (custody_view_ != view->serial()) return view->over()->status();
    if (custody_.row() == row) owed = custody_.Owed(view->lives());
  }
  if (owed.empty()) return view->over()->status();
  if (pusher_view_ != view) {
    pusher_ = nullptr;  // before the view whose channels it has
    pusher_view_ = view;
    pusher_ = std::make_unique<RowPusher>(
        &router_, view->names(), view->push_channels(),
        options_.reconnect_window, view->over());
  }
  v1::FrameMeta meta;
  meta.set_epoch(view->epoch());
  meta.set_session(row.session);
  meta.set_round(row.round);
  meta.set_kind(row.seed ? v1::SEED : v1::GRADIENT);
  meta.set_attempt(row.attempt);
  const absl::Status status = pusher_->Push(
      bound, dtype, meta, owed, absl::Now() + options_.transfer_timeout);
  MutexLock lock(&custody_mutex_);
  for (const RowPusher::Receipt& receipt : pusher_->receipts()) {
    custody_.Acknowledge(receipt.shard, view->lives(), receipt.landed,
                         receipt.crc32c);
  }
  return status;
}

absl::StatusOr<RowName> ClientCore::PushRow(uint64_t round,
                                            const Bound& bound) {
  RowName row;
  MutexLock lock(&push_mutex_);  // pushes take turns
  const absl::Status status = membership_->Persist(
      absl::InfiniteFuture(),
      [&](const View& view)
          ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_mutex_) -> absl::Status {
            CatchUp(*view);
            absl::Status status = membership_->CheckStanding(*view);
            const bool past = IsPast(*view, round);
            if (status.ok() && !past) status = CheckFirstRound(*view, round);
            if (!status.ok()) return status;
            // Another thread has pulled in the new session meanwhile.
            if (row.session != 0 && row.session != view->session()) {
              return absl::FailedPreconditionError(
                  "the lease ran out during the push, and this worker has "
                  "joined again; compute on what was pulled since");
            }
            if (row.session == 0) {
              MutexLock custody_lock(&custody_mutex_);
              row = custody_.Begin(/*seed=*/false, round, view->session());
            }
            if (past) return absl::OkStatus();
            return PushOwed(view, row, bound, job_.push_dtype);
          });
  if (!status.ok()) return status;
  return row;
}

absl::Status ClientCore::Push(absl::Span<const TensorView> gradient) {
  const absl::StatusOr<Bound> bound = BindRow(gradient, job_.push_dtype);
  if (!bound.ok()) return bound.status();
  return PushRow(version_, *bound).status();
}

absl::StatusOr<RoundOutcome> ClientCore::CommitOnce(const View& view,
                                                    const RowName& row,
                                                    const PushInfo& info,
                                                    const Bound* gradient,
                                                    absl::Time deadline) {
  CatchUp(*view);
  const absl::Status standing = membership_->CheckStanding(*view);
  if (!standing.ok()) return standing;
  // Only the outcome is missing.
  if (IsPast(*view, row.round)) {
    return session_.WaitRound(*view, row.round, row, deadline);
  }
  const absl::Status takes_part = CheckFirstRound(*view, row.round);
  if (!takes_part.ok()) return takes_part;
  if (gradient != nullptr) {
    MutexLock lock(&push_mutex_);
    const absl::Status pushed = PushOwed(view, row, *gradient, job_.push_dtype);
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
      custody_.Commit();
    }
  }
  return session_.Commit(*view, std::move(request), deadline, info.traceparent);
}

absl::StatusOr<RoundOutcome> ClientCore::CommitRow(const RowName& row,
                                                   const PushInfo& info,
                                                   const Bound* gradient) {
  const absl::Time deadline = absl::Now() + options_.round_timeout;
  absl::StatusOr<RoundOutcome> outcome;
  const absl::Status status =
      membership_->Persist(deadline, [&](const View& view) {
        outcome = CommitOnce(view, row, info, gradient, deadline);
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
  }
  audit_.Add(push);
}

absl::StatusOr<RoundOutcome> ClientCore::Commit(const PushInfo& info) {
  RowName row;
  {
    MutexLock lock(&custody_mutex_);
    row = custody_.Find(/*seed=*/false, version_);
  }
  row.round = version_;  // also if nothing was pushed
  return CommitRow(row, info, nullptr);
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
