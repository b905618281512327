// One Join after the other, each with a limit of its own, so that an answer
// that never comes costs one attempt and not the window.
#include "worker_client/resume_call.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/agg.grpc.pb.h"
#include "proto/protocol_version.h"
#include "worker_client/channel.h"
#include "worker_client/join_call.h"

namespace agg {
namespace {

using Reply = absl::StatusOr<v1::JoinReply>;

absl::Duration Left(const Returner& returner, const RecoveryWindow& window) {
  return std::min(window.end() - returner.clock->Now(),
                  returner.deadline - absl::Now());
}

Reply Observe(const Returner& returner, v1::Coordinator::Stub* stub,
              absl::Time deadline, grpc::Status* status) {
  v1::ObserveRequest request;
  request.set_protocol_version(kProtocolVersion);
  v1::JoinReply reply;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  CancelSource::Registration registration(returner.fate, &context);
  *status = stub->Observe(&context, request, &reply);
  if (!status->ok()) {
    return FromGrpc(*status, returner.coordinator, "Observe");
  }
  reply.set_session(returner.session);
  return reply;
}

Reply Join(const Returner& returner, v1::Coordinator::Stub* stub,
           absl::Time deadline, grpc::Status* status) {
  v1::JoinRequest request = MakeJoinRequest(*returner.options);
  request.set_resume_session(returner.session);
  if (returner.held.any) {
    request.set_resume_version(returner.held.version);
    request.set_resume_made(returner.held.made);
  }
  v1::JoinReply reply;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  CancelSource::Registration registration(returner.fate, &context);
  *status = stub->Join(&context, request, &reply);
  if (!status->ok()) return FromGrpc(*status, returner.coordinator, "Join");
  return reply;
}

Reply ResumeOnce(const Returner& returner,
                 const std::shared_ptr<grpc::Channel>& channel,
                 absl::Duration longest, grpc::Status* status) {
  v1::Coordinator::Stub stub(channel);
  const absl::Time deadline =
      absl::Now() + std::min(longest, kResumeCallTimeout);
  if (returner.observes) return Observe(returner, &stub, deadline, status);
  Reply joined = Join(returner, &stub, deadline, status);
  if (!absl::IsFailedPrecondition(joined.status())) return joined;
  // Nobody joins a job that has finished; what is left of it can be pulled.
  grpc::Status observed;
  Reply finished = Observe(returner, &stub, deadline, &observed);
  if (!finished.ok() || !finished->finished()) return joined;
  *status = observed;
  return finished;
}

// Not a plain sleep: it lets a channel go on resolving and connecting, and ends
// when that has succeeded.
void Pause(absl::Duration pause, grpc::Channel* channel, CancelSource* fate) {
  if (channel->GetState(true) == GRPC_CHANNEL_READY) {
    fate->WaitFor(pause).IgnoreError();
    return;
  }
  constexpr absl::Duration kLook = absl::Milliseconds(50);
  const absl::Time until = Clock::Real()->Now() + pause;
  while (fate->status().ok() && Clock::Real()->Now() < until) {
    if (channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kLook))) {
      return;
    }
  }
}

}  // namespace

absl::Status TriedForRecovery(const absl::Status& failure,
                              const ClientOptions& options) {
  return absl::Status(
      failure.code(),
      absl::StrCat(failure.message(), " (tried for recovery_window, ",
                   absl::FormatDuration(options.recovery_window), ")"));
}

Reply ResumeJob(const Returner& returner,
                std::shared_ptr<grpc::Channel>* channel, RecoveryWindow* window,
                WaitReport* report) {
  absl::Status
      reason;  // why there was no answer: says more than that none came
  while (true) {
    absl::Status fate = returner.fate->status();
    if (!fate.ok()) return fate;
    grpc::Status status;
    Reply reply =
        ResumeOnce(returner, *channel, Left(returner, *window), &status);
    if (reply.ok()) return reply;
    fate = returner.fate->status();
    if (!fate.ok()) return fate;
    const bool silent =
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (!silent && !IsConnectionLoss(status) && !IsLimit(status)) return reply;
    if (!silent || reason.ok()) {
      reason = absl::UnavailableError(reply.status().message());
    }
    const absl::optional<absl::Duration> pause =
        window->AfterFailure(returner.clock->Now(), absl::ZeroDuration());
    if (absl::Now() >= returner.deadline) {
      return absl::DeadlineExceededError(reason.message());
    }
    if (!pause.has_value()) return TriedForRecovery(reason, *returner.options);
    report->Say(std::string(reason.message()), absl::Now());
    if (silent) {
      *channel =
          MakeChannel(returner.coordinator.address, returner.coordinator.tls,
                      returner.options->token_file);
    }
    Pause(std::min(*pause, Left(returner, *window)), channel->get(),
          returner.fate);
  }
}

}  // namespace agg
