// The end of an epoch, seen by any call or by the lease's thread, cancels the
// view's calls; whoever resumes puts the next view in its place.
#include "worker_client/membership.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/agg.grpc.pb.h"
#include "proto/protocol_version.h"
#include "worker_client/channel.h"
#include "worker_client/client_token.h"
#include "worker_client/join_call.h"
#include "worker_client/resume_call.h"

namespace agg {
namespace {

// How often one call is made again that ended with UNAUTHENTICATED.
constexpr int kMaxAuthentications = 3;

constexpr absl::Duration kLookForCancel = absl::Milliseconds(50);
// Until the lease's thread has surely heard why an epoch is over.
constexpr absl::Duration kHearsay = absl::Seconds(2);

// An attempt that only failed is over before that.
absl::Duration Works(const ClientOptions& options) {
  return options.reconnect_window + RetryPolicy::kWorks;
}

// Asks the coordinator.
bool EpochIsOver(const JobView& view, absl::Duration timeout) {
  v1::ObserveRequest request;
  request.set_protocol_version(kProtocolVersion);
  v1::JoinReply reply;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  CancelSource::Registration registration(view.over(), &context);
  const grpc::Status status =
      view.coordinator()->Observe(&context, request, &reply);
  return !status.ok() || reply.epoch() != view.epoch();
}

}  // namespace

Membership::Membership(const ClientOptions& options, const Clock* clock)
    : options_(options),
      name_{0, options.coordinator, options.tls},
      clock_(clock),
      coordinator_(
          MakeChannel(options.coordinator, options.tls, options.token_file)),
      outage_(options.recovery_window, Works(options)),
      resumed_at_(clock->Now()) {}

absl::StatusOr<std::unique_ptr<Membership>> Membership::Open(
    const ClientOptions& options, const Clock* clock) {
  const absl::Status status =
      CheckToken(options.token_file, options.coordinator, options.tls.any());
  if (!status.ok()) return status;
  auto membership = std::unique_ptr<Membership>(new Membership(options, clock));
  {
    MutexLock resuming(&membership->resume_mutex_);
    const std::shared_ptr<grpc::Channel> channel = membership->coordinator_;
    const auto stub = v1::Coordinator::NewStub(channel);
    absl::StatusOr<v1::JoinReply> joined =
        JoinJob(options, membership->name_, channel.get(), stub.get());
    if (!joined.ok()) return joined.status();
    membership->finished_ = joined->finished();
    membership->Replace(
        std::make_shared<JobView>(options, *std::move(joined), channel),
        HeldVersion());
  }
  if (!options.observer) membership->Attend();
  return membership;
}

Membership::~Membership() {
  End(absl::CancelledError("this client has left the job"));
}

Membership::View Membership::view() const {
  MutexLock lock(&mutex_);
  return view_;
}

absl::Status Membership::Persist(
    const CallLimit& limit,
    const std::function<absl::Status(const View&)>& call) {
  RecoveryWindow window(options_.recovery_window, Works(options_));
  int authentications_left = kMaxAuthentications;
  while (true) {
    const View view = this->view();
    const absl::Time began = clock_->Now();
    const absl::Status status = call(view);
    if (status.ok()) return status;
    // The reason says more than a stale epoch, and may be on its way here.
    if (options_.recovery_window <= absl::ZeroDuration() &&
        !options_.observer && absl::IsAborted(status) &&
        EpochIsOver(*view, options_.call_timeout)) {
      AwaitReason(limit);
    }
    absl::Status fate = Pause(absl::ZeroDuration(), limit);
    if (!fate.ok()) return fate;
    if (options_.recovery_window <= absl::ZeroDuration()) {
      return Explain(status);
    }
    // A call ends with the token that it was begun with, which may have been
    // replaced since, and the lease's stream, which may take the next view
    // with it, ends so a moment later: the next ones have the new token. Who
    // has none is told so.
    const bool again =
        absl::IsUnauthenticated(status) && authentications_left-- > 0;
    if (!again && !MayBeOver(*view, status)) return status;
    const absl::Time now = clock_->Now();
    const absl::optional<absl::Duration> pause =
        window.AfterFailure(now, now - began);
    if (!pause.has_value()) return TriedForRecovery(status, options_);
    fate = Pause(*pause, limit);
    if (!fate.ok()) return fate;
    view->over()->Cancel(status);
    const absl::Status next = AwaitNext(view, limit, &window);
    if (!next.ok()) return next;
  }
}

void Membership::AwaitReason(const CallLimit& limit) {
  const absl::Time until = clock_->Now() + kHearsay;
  while (fate_.status().ok() && limit.cancelled().ok() &&
         clock_->Now() < until) {
    fate_.WaitFor(kLookForCancel).IgnoreError();
  }
}

absl::Status Membership::Pause(absl::Duration pause, const CallLimit& limit) {
  absl::Status fate = fate_.status();
  if (limit.cancel != nullptr) {
    // In short waits, so that the call's end is seen.
    while (fate.ok() && limit.cancelled().ok() &&
           pause > absl::ZeroDuration()) {
      fate = fate_.WaitFor(std::min(pause, kLookForCancel));
      pause -= kLookForCancel;
    }
  } else if (pause > absl::ZeroDuration()) {
    fate = fate_.WaitFor(pause);
  }
  return fate.ok() ? limit.cancelled() : fate;
}

bool Membership::MayBeOver(const JobView& view, const absl::Status& status) {
  if (!view.over()->status().ok()) return true;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:  // a server that ends does that
    case absl::StatusCode::kUnknown:    // so may a connection that breaks
    case absl::StatusCode::kNotFound:   // the session
      return true;
    // A stale epoch, or something else that the coordinator knows nothing of.
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kInternal:
      return EpochIsOver(view, options_.call_timeout);
    default:
      return false;
  }
}

absl::Status Membership::AwaitNext(const View& view, const CallLimit& limit,
                                   RecoveryWindow* window) {
  {
    // Looks at both clocks each second: one of them leaves out what this
    // process spends frozen.
    const absl::Duration look =
        limit.cancel == nullptr ? absl::Seconds(1) : kLookForCancel;
    const auto left = [&] {
      return std::min(limit.deadline - absl::Now(),
                      window->end() - clock_->Now());
    };
    MutexLock lock(&mutex_);
    while (view_ == view && attended_ && fate_.status().ok() &&
           limit.cancelled().ok() && left() > absl::ZeroDuration()) {
      changed_.WaitFor(&mutex_, std::min(left(), look));
    }
    if (!fate_.status().ok()) return fate_.status();
    if (!limit.cancelled().ok()) return limit.cancelled();
    if (view_ != view) return absl::OkStatus();
    if (attended_) {
      const absl::Status why = view->over()->status();
      if (absl::Now() < limit.deadline) return TriedForRecovery(why, options_);
      return absl::DeadlineExceededError(
          absl::StrCat(why.message(), "; the job is not back in time"));
    }
  }
  return Resume(view, limit.deadline, window);
}

absl::Status Membership::Resume(const View& view, absl::Time deadline,
                                RecoveryWindow* window) {
  MutexLock resuming(&resume_mutex_);
  Returner returner;
  {
    MutexLock lock(&mutex_);
    if (view_ != view) return absl::OkStatus();
    returner.held = held_;
  }
  returner.options = &options_;
  returner.coordinator = name_;
  returner.session = view->session();
  returner.observes = options_.observer || finished_;
  returner.fate = &fate_;
  returner.deadline = deadline;
  returner.clock = clock_;
  WaitReport report(options_, ClientEvent::Kind::kRecovering);
  report.Say(std::string(view->over()->status().message()), absl::Now());
  absl::StatusOr<v1::JoinReply> reply =
      ResumeJob(returner, &coordinator_, window, &report);
  if (!reply.ok()) return reply.status();
  const auto next = std::make_shared<JobView>(
      options_, *std::move(reply), coordinator_, *view, returner.held);
  const absl::Status status = next->CheckSameJob(*view);
  if (!status.ok()) return status;
  if (next->reply().finished()) finished_ = true;
  draining_ = false;
  Replace(next, returner.held);
  return absl::OkStatus();
}

void Membership::Replace(const View& next, const HeldVersion& held) {
  const Standing standing = next->standing(held);
  const bool first = next->serial() == 0;
  if (!first) {
    const uint64_t version = next->reply().version();
    if (standing == Standing::kRewound) {
      Say(ClientEvent::Kind::kRewound, version,
          absl::StrCat("from version ", held.version, " to version ", version));
    }
    Say(ClientEvent::Kind::kRecovered, version,
        standing == Standing::kUnseeded
            ? "its parameters are lost, and it has no checkpoint; Seed again"
            : absl::StrCat("epoch ", next->epoch(), ", version ", version));
  }
  MutexLock lock(&mutex_);
  // The versions of a past that was given up were made by somebody else.
  if (standing != Standing::kGood) made_.clear();
  if (next->reply().seeded()) {
    made_[next->reply().version()] = next->reply().made();
  }
  view_ = next;
  // A view that comes too late for the client's end is over at once.
  if (!fate_.status().ok()) next->over()->Cancel(fate_.status());
  changed_.NotifyAll();
}

bool Membership::NoteHeld(const JobView& view, uint64_t version) {
  MutexLock lock(&mutex_);
  // Resume reads held_ after the view is over: either it hears of this, or this
  // has no effect.
  if (!view.over()->status().ok()) return false;
  const auto found = made_.find(version);
  uint64_t made = found == made_.end() ? 0 : found->second;
  // What came after the Join was made in the Join's epoch, whoever says so.
  const bool later = !view.reply().seeded() || version > view.reply().version();
  if (made == 0 && later) made = view.epoch();
  held_ = {true, version, made, view.session(), view.serial()};
  return true;
}

Standing Membership::standing(const JobView& view) const {
  MutexLock lock(&mutex_);
  return view.standing(held_);
}

absl::Status Membership::CheckStanding(const JobView& view) const {
  HeldVersion held;
  {
    MutexLock lock(&mutex_);
    held = held_;
  }
  const uint64_t version = view.reply().version();
  // Before its first round the worker's gradients count for nothing.
  const uint64_t wanted = std::max(version, view.reply().first_round());
  switch (view.standing(held)) {
    case Standing::kRewound:
      return absl::FailedPreconditionError(absl::StrCat(
          "the job has gone back from version ", held.version, " to version ",
          version, "; Pull version ", wanted, " and compute on that"));
    case Standing::kNewSession:
      return absl::FailedPreconditionError(absl::StrCat(
          "the lease had run out, and this worker has joined again; Pull ",
          "version ", wanted, " and compute on that"));
    case Standing::kUnseeded:
      return absl::FailedPreconditionError(
          "the job has lost its parameters, and there is no checkpoint; Seed "
          "again");
    default:
      return absl::OkStatus();
  }
}

}  // namespace agg
