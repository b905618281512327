// Commits, waits for outcomes and asks for the newest version; each call is
// made again after a lost connection.
#include "worker_client/coordinator_session.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "proto/protocol_version.h"
#include "proto/reduction.grpc.pb.h"
#include "proto/traceparent.h"
#include "server/base/status_macros.h"
#include "worker_client/client_event.h"
#include "worker_client/job_view.h"
#include "worker_client/retry.h"

namespace agg {

namespace {

std::string WithReason(std::string text, const std::string& reason) {
  if (!reason.empty()) absl::StrAppend(&text, ": ", reason);
  return text;
}

}  // namespace

std::vector<std::string> OutcomeWatch::Note(const RoundOutcome& outcome) {
  std::vector<std::string> news;
  if (outcome.kind == RoundOutcome::Kind::kRewound) {
    MutexLock lock(&mutex_);  // those rounds are made once more
    next_round_ = std::min(next_round_, outcome.version);
    return news;
  }
  const bool skipped = outcome.kind == RoundOutcome::Kind::kSkipped;
  if (!skipped && outcome.kind != RoundOutcome::Kind::kApplied) return news;
  MutexLock lock(&mutex_);
  if (outcome.round < next_round_) return news;
  next_round_ = outcome.round + 1;
  ++num_rounds_;
  if (skipped && ++num_skipped_ == 1) {
    news.push_back(
        WithReason(absl::StrCat("round ", outcome.round,
                                " was skipped, and has changed ", "nothing"),
                   outcome.message));
  }
  for (const int rank : outcome.excluded_ranks) {
    ++num_left_out_[rank];
    // A skipped round leaves all out: whose fault it is shows in another one.
    if (skipped || !told_.insert(rank).second) continue;
    news.push_back(
        WithReason(absl::StrCat("round ", outcome.round,
                                " has left out the row of rank ", rank),
                   outcome.message));
  }
  return news;
}

std::string OutcomeWatch::Summary() const {
  MutexLock lock(&mutex_);
  std::string text;
  if (num_skipped_ > 1) {
    text =
        absl::StrCat(num_skipped_, " of ", num_rounds_, " rounds were skipped");
  }
  for (const auto& [rank, count] : num_left_out_) {
    if (count <= 1) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", count, " of ", num_rounds_,
                    " rounds have left out the row of rank ", rank);
  }
  return text;
}

CoordinatorSession::CoordinatorSession(const ClientOptions& options,
                                       Membership* membership)
    : options_(options),
      name_{0, options.coordinator, options.tls},
      membership_(membership) {}

absl::Status CoordinatorSession::Over(const JobView& view,
                                      const CallLimit& limit) {
  const absl::Status over = view.over()->status();
  return over.ok() ? limit.cancelled() : over;
}

absl::Status CoordinatorSession::AwaitConnection(const JobView& view,
                                                 const CallLimit& limit) {
  // In short waits, so that the session's end is seen.
  constexpr absl::Duration kLook = absl::Milliseconds(50);
  absl::Status over = Over(view, limit);
  for (absl::Time now = absl::Now(); over.ok() && now < limit.deadline;
       now = absl::Now()) {
    if (view.push_channels().front()->WaitForConnected(
            absl::ToChronoTime(std::min(limit.deadline, now + kLook)))) {
      break;
    }
    over = Over(view, limit);
  }
  return over;
}

namespace {

// A server that ends answers why, and then its port refuses.
grpc::Status WithFirst(const grpc::Status& last, const grpc::Status& first) {
  if (!IsConnectionLoss(last) ||
      first.error_message() == last.error_message()) {
    return last;
  }
  return grpc::Status(last.error_code(),
                      absl::StrCat(last.error_message(),
                                   "; before that: ", first.error_message()));
}

}  // namespace

absl::Status CoordinatorSession::Call(
    const JobView& view, absl::string_view name, const CallLimit& limit,
    const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  RetryPolicy retries(options_.reconnect_window);
  absl::Status over = Over(view, limit);
  grpc::Status first;  // failure of the outage
  while (over.ok()) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(limit.deadline));
    // A long poll gets no sign of life until its answer, so that only the
    // channel can tell for how long it had a connection.
    const bool connected =
        view.push_channels().front()->GetState(false) == GRPC_CHANNEL_READY;
    const absl::Time began = absl::Now();
    grpc::Status status;
    {
      CancelSource::Registration registration(view.over(), &context);
      absl::optional<CancelSource::Registration> cancel;
      if (limit.cancel != nullptr) cancel.emplace(limit.cancel, &context);
      status = call(&context);
    }
    if (status.ok()) return absl::OkStatus();
    over = Over(view, limit);
    if (!over.ok()) break;
    const absl::Time now = absl::Now();
    const absl::Time window_end = retries.window_end();
    const absl::optional<absl::Duration> pause = retries.AfterFailure(
        status, now, connected ? now - began : absl::ZeroDuration());
    if (first.ok() || retries.window_end() != window_end) first = status;
    if (!pause.has_value() ||
        (membership_->draining() && IsConnectionLoss(status))) {
      return membership_->Explain(
          FromGrpc(WithFirst(status, first), name_, name));
    }
    over = view.over()->WaitFor(*pause);
    if (over.ok()) {
      const absl::Time until = std::min({limit.deadline, retries.window_end(),
                                         now + options_.reconnect_window});
      over = AwaitConnection(view, {until, limit.cancel});
    }
  }
  return over;
}

RoundOutcome CoordinatorSession::Note(const JobView& view,
                                      const v1::RoundOutcome& reply) {
  if (reply.finished()) membership_->NoteFinished();
  view.NotePublished(reply.version());
  membership_->NoteMade(reply.version(), reply.epoch());
  RoundOutcome outcome = OutcomeOf(reply);
  for (std::string& news : watch_.Note(outcome)) {
    Say(outcome.version, std::move(news));
  }
  return outcome;
}

void CoordinatorSession::Say(uint64_t version, std::string message) const {
  if (!options_.on_event || message.empty()) return;
  options_.on_event({ClientEvent::Kind::kLeftOut, version, std::move(message)});
}

absl::StatusOr<RoundOutcome> CoordinatorSession::Commit(
    const JobView& view, v1::CommitRequest request, const CallLimit& limit,
    const std::string& traceparent) {
  // gRPC aborts on metadata with forbidden bytes.
  const bool traced = IsTraceparent(traceparent);
  request.set_epoch(view.epoch());
  request.set_session(view.session());
  v1::RoundOutcome reply;
  AGG_RETURN_IF_ERROR(
      Call(view, "Commit", limit, [&](grpc::ClientContext* context) {
        if (traced) {
          context->AddMetadata(kTraceparent, traceparent);
        }
        return view.coordinator()->Commit(context, request, &reply);
      }));
  return Note(view, reply);
}

absl::StatusOr<RoundOutcome> CoordinatorSession::WaitRound(
    const JobView& view, uint64_t round, const RowName& row,
    const CallLimit& limit) {
  v1::WaitRequest request;
  request.set_epoch(view.epoch());
  // A row of a former session of this worker is asked for by that one's number.
  request.set_session(row.session != 0 ? row.session : view.session());
  request.set_round(round);
  request.set_attempt(row.attempt);
  v1::RoundOutcome reply;
  AGG_RETURN_IF_ERROR(
      Call(view, "WaitRound", limit, [&](grpc::ClientContext* context) {
        return view.coordinator()->WaitRound(context, request, &reply);
      }));
  return Note(view, reply);
}

absl::StatusOr<CoordinatorSession::Reduced> CoordinatorSession::Reduce(
    const JobView& view, const ReductionCall& call, const CallLimit& limit) {
  v1::ReduceRequest request;
  request.set_epoch(view.epoch());
  request.set_session(view.session());
  request.set_giver(call.giver);
  request.set_call(call.call);
  request.set_withdraw(call.withdraw);
  if (!call.withdraw) {
    request.set_what(call.what);
    request.mutable_values()->Add(call.values.begin(), call.values.end());
  }
  const auto stub = v1::Reductions::NewStub(view.push_channels().front());
  v1::ReduceReply reply;
  const absl::Status status =
      Call(view, "Reduce", limit, [&](grpc::ClientContext* context) {
        return stub->Reduce(context, request, &reply);
      });
  if (!status.ok()) return status;
  Reduced reduced;
  reduced.waiting_for.assign(reply.waiting_for().begin(),
                             reply.waiting_for().end());
  reduced.note = reply.note();
  reduced.withdrawn = reply.withdrawn();
  if (!reduced.waiting_for.empty() || reduced.withdrawn) return reduced;
  if (static_cast<size_t>(reply.sums_size()) != call.values.size()) {
    return absl::InternalError(absl::StrCat(
        ToString(name_), " has answered Reduce of ", call.values.size(),
        " values with ", reply.sums_size(), " sums"));
  }
  reduced.made.sums.assign(reply.sums().begin(), reply.sums().end());
  reduced.made.ranks.assign(reply.ranks().begin(), reply.ranks().end());
  reduced.made.left_out.assign(reply.left_out().begin(),
                               reply.left_out().end());
  return reduced;
}

absl::StatusOr<uint64_t> CoordinatorSession::LatestVersion(
    const JobView& view) {
  v1::ObserveRequest request;
  request.set_protocol_version(kProtocolVersion);
  v1::JoinReply reply;
  AGG_RETURN_IF_ERROR(Call(view, "Observe", absl::Now() + options_.call_timeout,
                           [&](grpc::ClientContext* context) {
                             return view.coordinator()->Observe(
                                 context, request, &reply);
                           }));
  if (reply.epoch() != view.epoch()) {
    const absl::Status stale = absl::AbortedError(absl::StrCat(
        ToString(name_), ": the shards have begun epoch ", reply.epoch(),
        " after ", view.epoch(), "; Connect again to go on"));
    if (options_.recovery_window > absl::ZeroDuration()) {
      view.over()->Cancel(stale);
    }
    return stale;
  }
  if (reply.finished()) membership_->NoteFinished();
  if (!reply.seeded()) {
    return absl::FailedPreconditionError(absl::StrCat(
        ToString(name_), ": the job has no parameters yet; a worker must ",
        "Seed them"));
  }
  view.NotePublished(reply.version());
  membership_->NoteMade(reply.version(), reply.made());
  return reply.version();
}

absl::Status CoordinatorSession::Leave(const JobView& view) {
  Say(0, watch_.Summary());
  v1::LeaveRequest request;
  request.set_epoch(view.epoch());
  request.set_session(view.session());
  v1::LeaveReply reply;
  return Call(view, "Leave", absl::Now() + options_.call_timeout,
              [&](grpc::ClientContext* context) {
                return view.coordinator()->Leave(context, request, &reply);
              });
}

}  // namespace agg
