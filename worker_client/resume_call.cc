// One Join after the other, each with a limit of its own, so that an answer
// that never comes costs one attempt and not the window.
#include "worker_client/resume_call.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/agg.grpc.pb.h"
#include "proto/protocol_version.h"
#include "worker_client/channel.h"
#include "worker_client/join_call.h"

namespace agg {
namespace {

absl::Duration Left(const Returner& returner, const RecoveryWindow& window) {
  return std::min(window.end() - returner.clock->Now(),
                  returner.deadline - absl::Now());
}

// One call, and what came of it.
struct Attempt {
  absl::string_view call;
  grpc::Status status;
  v1::JoinReply reply;
};

Attempt Observe(const Returner& returner, v1::Coordinator::Stub* stub,
                absl::Time deadline) {
  v1::ObserveRequest request;
  request.set_protocol_version(kProtocolVersion);
  Attempt attempt{"Observe", {}, {}};
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  CancelSource::Registration registration(returner.fate, &context);
  attempt.status = stub->Observe(&context, request, &attempt.reply);
  attempt.reply.set_session(returner.session);
  return attempt;
}

Attempt Join(const Returner& returner, v1::Coordinator::Stub* stub,
             absl::Time deadline) {
  v1::JoinRequest request = MakeJoinRequest(*returner.options);
  request.set_resume_session(returner.session);
  if (returner.held.any) {
    request.set_resume_version(returner.held.version);
    request.set_resume_made(returner.held.made);
  }
  Attempt attempt{"Join", {}, {}};
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  CancelSource::Registration registration(returner.fate, &context);
  attempt.status = stub->Join(&context, request, &attempt.reply);
  return attempt;
}

Attempt ResumeOnce(const Returner& returner,
                   const std::shared_ptr<grpc::Channel>& channel,
                   absl::Duration longest) {
  v1::Coordinator::Stub stub(channel);
  const absl::Time deadline =
      absl::Now() + std::min(longest, kResumeCallTimeout);
  if (returner.observes) return Observe(returner, &stub, deadline);
  Attempt joined = Join(returner, &stub, deadline);
  if (joined.status.error_code() != grpc::StatusCode::FAILED_PRECONDITION) {
    return joined;
  }
  // Nobody joins a job that has finished; what is left of it can be pulled.
  Attempt finished = Observe(returner, &stub, deadline);
  return finished.status.ok() && finished.reply.finished() ? finished : joined;
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

absl::StatusOr<v1::JoinReply> ResumeJob(const Returner& returner,
                                        std::shared_ptr<grpc::Channel>* channel,
                                        RecoveryWindow* window,
                                        WaitReport* report) {
  // Only of what is said or returned, since it may connect once more.
  const auto explain = [&](const Attempt& attempt) {
    return FromGrpc(attempt.status, returner.coordinator, attempt.call);
  };
  Attempt reason;  // no answer, and why: says more than that none came
  while (true) {
    absl::Status fate = returner.fate->status();
    if (!fate.ok()) return fate;
    Attempt attempt = ResumeOnce(returner, *channel, Left(returner, *window));
    const grpc::Status& status = attempt.status;
    if (status.ok()) return std::move(attempt.reply);
    fate = returner.fate->status();
    if (!fate.ok()) return fate;
    const bool silent =
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (!silent && !IsConnectionLoss(status) && !IsLimit(status)) {
      return explain(attempt);
    }
    if (!silent || reason.status.ok()) reason = attempt;
    const absl::optional<absl::Duration> pause =
        window->AfterFailure(returner.clock->Now(), absl::ZeroDuration());
    const absl::Time now = absl::Now();
    if (now >= returner.deadline) {
      return absl::DeadlineExceededError(explain(reason).message());
    }
    if (!pause.has_value()) {
      return TriedForRecovery(absl::UnavailableError(explain(reason).message()),
                              *returner.options);
    }
    if (report->Due(now)) {
      report->Say(std::string(explain(reason).message()), now);
    }
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
