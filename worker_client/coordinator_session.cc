// Commits, waits for outcomes and keeps what the job's events say; each call is
// made again after a lost connection.
#include "worker_client/coordinator_session.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/protocol_version.h"
#include "proto/traceparent.h"
#include "worker_client/channel.h"
#include "worker_client/client_event.h"
#include "worker_client/job_messages.h"
#include "worker_client/join_call.h"
#include "worker_client/retry.h"

namespace agg {

CoordinatorSession::CoordinatorSession(const ClientOptions& options,
                                       std::shared_ptr<grpc::Channel> channel)
    : options_(options),
      name_{0, options.coordinator},
      channel_(std::move(channel)),
      stub_(v1::Coordinator::NewStub(channel_)) {}

absl::StatusOr<std::unique_ptr<CoordinatorSession>> CoordinatorSession::Open(
    const ClientOptions& options) {
  auto session = std::unique_ptr<CoordinatorSession>(
      new CoordinatorSession(options, MakeChannel(options.coordinator)));
  absl::StatusOr<v1::JoinReply> joined = JoinJob(
      options, session->name_, session->channel_.get(), session->stub_.get());
  if (!joined.ok()) {
    session->left_ = true;  // there is nothing to leave
    return joined.status();
  }
  session->description_ = *std::move(joined);
  session->finished_ = session->description_.finished();
  if (session->description_.seeded()) {
    session->NotePublished(session->description_.version());
  }
  if (session->description_.seed_role()) {
    session->seed_wait_.Cancel(absl::FailedPreconditionError("seed role"));
  }
  if (!options.observer) session->Attend();
  return session;
}

CoordinatorSession::~CoordinatorSession() { Leave().IgnoreError(); }

void CoordinatorSession::Attend() {
  LeaseOptions lease;
  lease.coordinator = name_;
  lease.channel = channel_;
  lease.epoch = description_.epoch();
  lease.session = description_.session();
  lease.lease = std::max(absl::Milliseconds(description_.lease_ms()),
                         absl::Milliseconds(30));
  lease.reconnect_window = options_.reconnect_window;
  lease.on_event = [this](const v1::JobEvent& event) { OnEvent(event); };
  lease.on_lost = [this](absl::Status why) { fate_.Cancel(Explain(why)); };
  MutexLock lock(&keeper_mutex_);
  keeper_ = std::make_unique<LeaseKeeper>(std::move(lease));
}

absl::Status CoordinatorSession::FateBy(const v1::JobEvent& event) const {
  switch (event.kind()) {
    case v1::JobEvent::SHARD_LOST:
      return absl::UnavailableError(
          absl::StrCat(event.message(), "; the job is over without it: ",
                       "restart it, Connect again and Seed"));
    case v1::JobEvent::SUPERSEDED:
      return absl::AbortedError(absl::StrCat(
          ToString(name_), ": superseded: another client joined as rank ",
          options_.rank, "; give every worker a rank of its own"));
    case v1::JobEvent::EXPIRED:
      return absl::NotFoundError(absl::StrCat(
          ToString(name_), ": the lease ran out; Connect again to go on"));
    case v1::JobEvent::EVICTED:
      return absl::AbortedError(
          absl::StrCat(ToString(name_), ": ", event.message(),
                       "; an operator ended this session"));
    default:
      return absl::OkStatus();
  }
}

void CoordinatorSession::OnEvent(const v1::JobEvent& event) {
  const std::optional<ClientEvent::Kind> kind = KindOf(event);
  if (!kind.has_value()) return;
  const absl::Status fate = FateBy(event);
  if (!fate.ok()) fate_.Cancel(fate);
  if (kind == ClientEvent::Kind::kFinished) finished_ = true;
  // The open round may still end well.
  if (kind == ClientEvent::Kind::kDraining) draining_ = true;
  if (kind == ClientEvent::Kind::kSeedRole) {
    seed_wait_.Cancel(absl::FailedPreconditionError("seed role"));
  }
  if (options_.on_event) {
    options_.on_event({*kind, event.version(), event.message()});
  }
}

absl::Status CoordinatorSession::Explain(const absl::Status& status) const {
  if (!draining_ || !absl::IsUnavailable(status)) return status;
  const absl::Status fate = fate_.status();
  if (!fate.ok()) return fate;
  return absl::UnavailableError(absl::StrCat(
      ToString(name_), " has shut down, as it had announced; the job is over ",
      "without it: restart it, Connect again and Seed"));
}

void CoordinatorSession::NotePublished(uint64_t version) {
  uint64_t before = num_published_;
  while (before <= version &&
         !num_published_.compare_exchange_weak(before, version + 1)) {
  }
}

absl::Status CoordinatorSession::AwaitConnection(absl::Time until) {
  // In short waits, so that the session's end is seen.
  constexpr absl::Duration kLook = absl::Milliseconds(50);
  absl::Status fate = fate_.status();
  for (absl::Time now = absl::Now(); fate.ok() && now < until;
       now = absl::Now()) {
    if (channel_->WaitForConnected(
            absl::ToChronoTime(std::min(until, now + kLook)))) {
      break;
    }
    fate = fate_.status();
  }
  return fate;
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
    absl::string_view name, absl::Time deadline,
    const std::function<grpc::Status(grpc::ClientContext*)>& call) {
  RetryPolicy retries(options_.reconnect_window);
  absl::Status fate = fate_.status();
  grpc::Status first;  // failure of the outage
  while (fate.ok()) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    // A long poll gets no sign of life until its answer, so that only the
    // channel can tell for how long it had a connection.
    const bool connected = channel_->GetState(false) == GRPC_CHANNEL_READY;
    const absl::Time began = absl::Now();
    grpc::Status status;
    {
      CancelSource::Registration registration(&fate_, &context);
      status = call(&context);
    }
    if (status.ok()) return absl::OkStatus();
    fate = fate_.status();
    if (!fate.ok()) break;
    const absl::Time now = absl::Now();
    const absl::Time window_end = retries.window_end();
    const absl::optional<absl::Duration> pause = retries.AfterFailure(
        status, now, connected ? now - began : absl::ZeroDuration());
    if (first.ok() || retries.window_end() != window_end) first = status;
    if (!pause.has_value() || (draining_ && IsConnectionLoss(status))) {
      return Explain(FromGrpc(WithFirst(status, first), name_, name));
    }
    fate = fate_.WaitFor(*pause);
    if (fate.ok()) {
      fate = AwaitConnection(std::min(
          {deadline, retries.window_end(), now + options_.reconnect_window}));
    }
  }
  return fate;
}

absl::StatusOr<RoundOutcome> CoordinatorSession::Commit(
    v1::CommitRequest request, const std::string& traceparent) {
  // gRPC aborts on metadata with forbidden bytes.
  const bool traced = IsTraceparent(traceparent);
  request.set_epoch(description_.epoch());
  request.set_session(description_.session());
  v1::RoundOutcome reply;
  absl::Status status =
      Call("Commit", absl::Now() + options_.round_timeout,
           [&](grpc::ClientContext* context) {
             if (traced) {
               context->AddMetadata(kTraceparent, traceparent);
             }
             return stub_->Commit(context, request, &reply);
           });
  if (!status.ok()) return status;
  if (reply.finished()) finished_ = true;
  NotePublished(reply.version());
  return OutcomeOf(reply);
}

absl::StatusOr<RoundOutcome> CoordinatorSession::WaitRound(uint64_t round,
                                                           uint32_t attempt) {
  v1::WaitRequest request;
  request.set_epoch(description_.epoch());
  request.set_session(description_.session());
  request.set_round(round);
  request.set_attempt(attempt);
  v1::RoundOutcome reply;
  absl::Status status =
      Call("WaitRound", absl::Now() + options_.round_timeout,
           [&](grpc::ClientContext* context) {
             return stub_->WaitRound(context, request, &reply);
           });
  if (!status.ok()) return status;
  if (reply.finished()) finished_ = true;
  NotePublished(reply.version());
  return OutcomeOf(reply);
}

absl::StatusOr<uint64_t> CoordinatorSession::LatestVersion() {
  v1::ObserveRequest request;
  request.set_protocol_version(kProtocolVersion);
  v1::JoinReply reply;
  absl::Status status = Call("Observe", absl::Now() + options_.call_timeout,
                             [&](grpc::ClientContext* context) {
                               return stub_->Observe(context, request, &reply);
                             });
  if (!status.ok()) return status;
  if (reply.epoch() != description_.epoch()) {
    return absl::AbortedError(absl::StrCat(
        ToString(name_), ": the shards have begun epoch ", reply.epoch(),
        " after ", description_.epoch(), "; Connect again to go on"));
  }
  if (reply.finished()) finished_ = true;
  if (!reply.seeded()) {
    return absl::FailedPreconditionError(absl::StrCat(
        ToString(name_), ": the job has no parameters yet; a worker must ",
        "Seed them"));
  }
  if (reply.finished()) finished_ = true;
  NotePublished(reply.version());
  return reply.version();
}

absl::Status CoordinatorSession::Leave() {
  if (left_.exchange(true)) return absl::OkStatus();
  absl::Status status;
  if (!options_.observer && fate_.status().ok()) {
    v1::LeaveRequest request;
    request.set_epoch(description_.epoch());
    request.set_session(description_.session());
    v1::LeaveReply reply;
    status = Call("Leave", absl::Now() + options_.call_timeout,
                  [&](grpc::ClientContext* context) {
                    return stub_->Leave(context, request, &reply);
                  });
  }
  fate_.Cancel(absl::CancelledError("this client has left the job"));
  MutexLock lock(&keeper_mutex_);
  keeper_.reset();
  return status;
}

}  // namespace agg
