// The end of an epoch, seen by any call or by the lease's thread, cancels the
// view's calls; whoever resumes puts the next view in its place.
#include "worker_client/membership.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/agg.grpc.pb.h"
#include "proto/manifest_message.h"
#include "proto/protocol_version.h"
#include "server/base/status_macros.h"
#include "server/base/utf8.h"
#include "worker_client/channel.h"
#include "worker_client/client_event.h"
#include "worker_client/job_view.h"
#include "worker_client/retry.h"

namespace agg {

// One reason at a time: the last one that was said.

void WaitReport::Say(const std::string& reason, absl::Time now) {
  if (!Due(now)) return;
  next_ = now + kSayAgain;
  if (reason == said_) return;
  said_ = reason;
  options_.on_event({kind_, 0, reason});
}

// One Join after the other, each with a limit of its own, so that an answer
// that never comes costs one attempt and not the window.

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

// Asks the coordinator how the job is; `end` cancels the call.
grpc::Status Observe(v1::Coordinator::StubInterface* stub, absl::Time deadline,
                     CancelSource* end, v1::JoinReply* reply) {
  v1::ObserveRequest request;
  request.set_protocol_version(kProtocolVersion);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  CancelSource::Registration registration(end, &context);
  return stub->Observe(&context, request, reply);
}

Attempt Observe(const Returner& returner, v1::Coordinator::Stub* stub,
                absl::Time deadline) {
  Attempt attempt{"Observe", {}, {}};
  attempt.status = Observe(stub, deadline, returner.fate, &attempt.reply);
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

absl::Status TriedFor(const absl::Status& failure, absl::string_view option,
                      absl::Duration value) {
  return absl::Status(failure.code(),
                      absl::StrCat(failure.message(), " (tried for ", option,
                                   ", ", absl::FormatDuration(value), ")"));
}

}  // namespace

absl::Status TriedForRecovery(const absl::Status& failure,
                              const ClientOptions& options) {
  return TriedFor(failure, "recovery_window", options.recovery_window);
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
    AGG_RETURN_IF_ERROR(returner.fate->status());
    Attempt attempt = ResumeOnce(returner, *channel, Left(returner, *window));
    const grpc::Status& status = attempt.status;
    if (status.ok()) return std::move(attempt.reply);
    AGG_RETURN_IF_ERROR(returner.fate->status());
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

// Calls Join again and again, with growing pauses, and says now and then who
// is waited for.

namespace {

// A job's shards find each other within that, mostly: nobody need hear of it.
constexpr absl::Duration kUsualStart = absl::Seconds(2);

// A plain sleep only where there is a connection: else this lets the channel go
// on resolving and connecting.
void Pause(absl::Duration pause, grpc::Channel* channel) {
  if (channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY) {
    absl::SleepFor(pause);
  } else {
    channel->WaitForConnected(absl::ToChronoTime(absl::Now() + pause));
  }
}

}  // namespace

std::string ClientName(const ClientOptions& options) {
  if (!options.client_name.empty()) return options.client_name;
  char host[256] = "?";
  gethostname(host, sizeof(host) - 1);
  return absl::StrCat(host, ":", getpid());
}

v1::JoinRequest MakeJoinRequest(const ClientOptions& options) {
  v1::JoinRequest join;
  join.set_protocol_version(kProtocolVersion);
  join.set_rank(options.rank);
  *join.mutable_manifest() = ToProto(options.manifest);
  join.set_client(ClientName(options));
  return join;
}

absl::StatusOr<v1::JoinReply> JoinJob(const ClientOptions& options,
                                      const ShardName& coordinator,
                                      grpc::Channel* channel,
                                      v1::Coordinator::StubInterface* stub) {
  const v1::JoinRequest join = MakeJoinRequest(options);
  v1::ObserveRequest observe;
  observe.set_protocol_version(kProtocolVersion);
  const absl::Time began = absl::Now();
  const absl::Time deadline = began + options.connect_timeout;
  absl::Duration pause = absl::Milliseconds(20);
  WaitReport report(options, ClientEvent::Kind::kWaiting);
  // Only of what is said or returned, since it may connect once more.
  const auto explain = [&](const grpc::Status& status) {
    return FromGrpc(status, coordinator, options.observer ? "Observe" : "Join");
  };
  grpc::Status waited_for;  // why there was no answer so far
  while (true) {
    v1::JoinReply reply;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    const grpc::Status status = options.observer
                                    ? stub->Observe(&context, observe, &reply)
                                    : stub->Join(&context, join, &reply);
    if (status.ok()) return reply;
    // The server may not be there yet, or wait for its other shards, or have
    // as many callers as it takes.
    const bool lost = IsConnectionLoss(status) || IsLimit(status);
    if (lost) waited_for = status;
    const bool late =
        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    if (!lost && !late) return explain(status);
    const absl::Time now = absl::Now();
    if (late || now + pause >= deadline) {
      // A reason says more than that time has passed.
      return TriedFor(explain(waited_for.ok() ? status : waited_for),
                      "connect_timeout", options.connect_timeout);
    }
    const bool usual = IsStarting(status) && now - began < kUsualStart;
    if (!usual && report.Due(now)) {
      report.Say(std::string(explain(status).message()), now);
    }
    Pause(pause, channel);
    pause = std::min(2 * pause, absl::Milliseconds(500));
  }
}

// One thread makes one Attend call after another. AttendCall is the state of
// one; the lease's clock outlives it.
//
// With gRPC's epoll1 one thread of a process waits for all of its sockets, and
// hands each event to the thread that wants it: two context switches in place
// of none. So this thread does not wait in gRPC while nothing is under way on
// its stream, but looks there from time to time.

namespace {

// How often the lease's thread looks what its stream has brought: what a
// coordinator says may be heard so much later. To look once costs some 10 us.
constexpr absl::Duration kLook = absl::Milliseconds(20);
// How often each time: to look once runs the event of one socket, and while the
// trainer computes nobody else answers the pings of its other connections. That
// nothing came out of the queue does not say that there are no more events.
constexpr int kLooks = 16;
// With many clients in a process each looks as much less often: a look runs any
// of its sockets' events, and costs a thread more where another one looks.
constexpr int kMaxShare = 16;

// The Attend calls of this process that run.
std::atomic<int> num_calls{0};

// One Attend call, on the thread that calls Run.
class AttendCall {
 public:
  AttendCall(const LeaseOptions& options, const Lease& lease,
             CancelSource* stop, absl::Time* answered, bool* draining)
      : options_(options),
        duration_(lease.duration),
        transports_(lease.transports),
        answered_(answered),
        draining_(draining),
        end_(lease.over != nullptr ? lease.over.get() : stop),
        stopped_(stop, &context_),
        stub_(lease.channel) {
    if (lease.over != nullptr) over_.emplace(lease.over.get(), &context_);
    renewal_.set_epoch(lease.epoch);
    renewal_.set_session(lease.session);
  }

  // Until the call ends: its status.
  grpc::Status Run() {
    ++num_calls;
    stream_ = stub_.PrepareAsyncAttend(&context_, &queue_);
    Begin(kStart, [this](void* tag) { stream_->StartCall(tag); });
    while (pending_ > 0) {
      if (RunEvent()) continue;
      const absl::Duration left = renew_at_ - Clock::Real()->Now();
      if (left <= absl::ZeroDuration()) {
        Renew();
      } else {
        end_->WaitFor(std::min(left, Look())).IgnoreError();
      }
    }
    Drain(&queue_);
    --num_calls;
    return status_;
  }

 private:
  enum Operation : intptr_t { kStart, kRead, kWrite, kFinish };

  // Whether there was an event. Waits for one, until the next renewal, while
  // more is under way than the read for what the coordinator may say.
  bool RunEvent() {
    const bool idle = reading_ && pending_ == 1 && end_->status().ok();
    const absl::Time until = idle ? kAtOnce : RenewDeadline();
    void* tag;
    bool ok;
    auto next = grpc::CompletionQueue::TIMEOUT;
    for (int i = 0;
         i < (idle ? Looks() : 1) && next == grpc::CompletionQueue::TIMEOUT;
         ++i) {
      next = queue_.AsyncNext(&tag, &ok, absl::ToChronoTime(until));
    }
    if (next != grpc::CompletionQueue::GOT_EVENT) return false;
    --pending_;
    Handle(static_cast<Operation>(reinterpret_cast<intptr_t>(tag)), ok);
    return true;
  }

  // In all calls of the process about as many as in one.
  static int Looks() { return std::max(1, kLooks / std::max(1, +num_calls)); }
  static absl::Duration Look() {
    return kLook * std::clamp(num_calls / kLooks, 1, kMaxShare);
  }

  template <typename F>
  void Begin(Operation operation, F start) {
    ++pending_;
    start(reinterpret_cast<void*>(static_cast<intptr_t>(operation)));
  }

  void Handle(Operation operation, bool ok) {
    switch (operation) {
      case kFinish:
        return;
      case kWrite:
        writing_ = false;
        break;
      case kRead:
        reading_ = false;
        if (ok) HandleEvent();
        break;
      case kStart:
        break;
    }
    if (!ok) ended_ = true;
    if (!ended_) {
      if (operation == kStart) Renew();
      if (operation != kWrite) Read();
      return;
    }
    renew_at_ = absl::InfiniteFuture();
    if (!reading_ && !writing_ && !finishing_) {
      finishing_ = true;
      Begin(kFinish, [this](void* tag) { stream_->Finish(&status_, tag); });
    }
  }

  void HandleEvent() {
    *answered_ = options_.clock->Now();
    if (event_.kind() == v1::JobEvent::DRAINING) *draining_ = true;
    if (event_.kind() != v1::JobEvent::RENEWED) options_.on_event(event_);
  }

  void Read() {
    reading_ = true;
    event_.Clear();
    Begin(kRead, [this](void* tag) { stream_->Read(&event_, tag); });
  }

  // gRPC takes the system's time, which may have stepped back since.
  absl::Time RenewDeadline() const {
    return absl::Now() + (renew_at_ - Clock::Real()->Now());
  }

  void Renew() {
    if (options_.clock->Now() - *answered_ > duration_) {
      context_.TryCancel();
      renew_at_ = absl::InfiniteFuture();
      return;
    }
    renew_at_ = Clock::Real()->Now() + duration_ / 3;
    if (writing_) return;  // the last one is still under way
    writing_ = true;
    if (transports_ != nullptr) renewal_.set_transports(transports_());
    Begin(kWrite, [this](void* tag) { stream_->Write(renewal_, tag); });
  }

  const LeaseOptions& options_;
  const absl::Duration duration_;
  const std::function<std::string()> transports_;
  absl::Time* const answered_;
  bool* const draining_;
  CancelSource* const end_;  // ends waits; the stream's end is cancelled, too
  grpc::ClientContext context_;
  CancelSource::Registration stopped_;
  absl::optional<CancelSource::Registration> over_;
  v1::Coordinator::Stub stub_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<v1::LeaseRenewal, v1::JobEvent>>
      stream_;
  v1::LeaseRenewal renewal_;
  v1::JobEvent event_;
  grpc::Status status_;
  absl::Time renew_at_ = absl::InfiniteFuture();  // by Clock::Real()
  int pending_ = 0;
  bool reading_ = false;
  bool writing_ = false;
  bool ended_ = false;
  bool finishing_ = false;
};

}  // namespace

LeaseKeeper::LeaseKeeper(LeaseOptions options)
    : options_(std::move(options)),
      answered_(options_.clock->Now()),
      thread_([this] { Loop(); }) {}

LeaseKeeper::~LeaseKeeper() {
  stop_.Cancel(absl::CancelledError("left"));
  thread_.join();
}

absl::Status LeaseKeeper::GiveUp(const Lease& lease,
                                 const grpc::Status& status) const {
  if (lease.over != nullptr) {
    AGG_RETURN_IF_ERROR(lease.over->status());
  }
  if (options_.clock->Now() - answered_ > lease.duration) {
    return absl::UnavailableError(absl::StrCat(
        ToString(options_.coordinator), ": has answered no lease renewal for ",
        absl::FormatDuration(lease.duration),
        "; check that its agg_server runs and can be reached"));
  }
  // Another process at the address would not know this session.
  if (draining_) return FromGrpc(status, options_.coordinator, "Attend");
  return absl::OkStatus();
}

absl::Status LeaseKeeper::Keep(const Lease& lease) {
  absl::optional<RetryPolicy> retries;
  while (true) {
    const absl::Time started = options_.clock->Now();
    grpc::Status status =
        AttendCall(options_, lease, &stop_, &answered_, &draining_).Run();
    if (!stop_.status().ok()) return stop_.status();
    if (status.ok()) {
      status = grpc::Status(grpc::StatusCode::UNAVAILABLE,
                            "the coordinator closed the lease's stream");
    }
    AGG_RETURN_IF_ERROR(GiveUp(lease, status));
    // The window of reconnecting begins anew when the stream worked.
    if (answered_ > started || !retries.has_value()) {
      retries.emplace(lease.gone_if_broken ? absl::ZeroDuration()
                                           : options_.reconnect_window);
    }
    const absl::optional<absl::Duration> pause =
        retries->AfterFailure(status, absl::Now());
    if (!pause.has_value()) {
      return FromGrpc(status, options_.coordinator, "Attend");
    }
    // Who stops this ends the lease's epoch first.
    CancelSource* const end = lease.over != nullptr ? lease.over.get() : &stop_;
    end->WaitFor(*pause).IgnoreError();
    AGG_RETURN_IF_ERROR(GiveUp(lease, status));
  }
}

void LeaseKeeper::Loop() {
  absl::optional<Lease> lease = options_.lease;
  while (lease.has_value() && stop_.status().ok()) {
    answered_ = options_.clock->Now();
    draining_ = false;
    const absl::Status why = Keep(*lease);
    if (!stop_.status().ok()) return;
    lease = options_.on_lost(why);
  }
}

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
  v1::JoinReply reply;
  const grpc::Status status =
      Observe(view.coordinator(), absl::Now() + timeout, view.over(), &reply);
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
  AGG_RETURN_IF_ERROR(
      CheckToken(options.token_file, options.coordinator, options.tls.any()));
  auto membership = std::unique_ptr<Membership>(new Membership(options, clock));
  {
    MutexLock resuming(&membership->resume_mutex_);
    const std::shared_ptr<grpc::Channel> channel = membership->coordinator_;
    const auto stub = v1::Coordinator::NewStub(channel);
    AGG_ASSIGN_OR_RETURN(
        v1::JoinReply joined,
        JoinJob(options, membership->name_, channel.get(), stub.get()));
    membership->finished_ = joined.finished();
    membership->Replace(
        std::make_shared<JobView>(options, std::move(joined), channel),
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
    AGG_RETURN_IF_ERROR(Pause(absl::ZeroDuration(), limit));
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
    AGG_RETURN_IF_ERROR(Pause(*pause, limit));
    view->over()->Cancel(status);
    AGG_RETURN_IF_ERROR(AwaitNext(view, limit, &window));
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
  AGG_ASSIGN_OR_RETURN(v1::JoinReply reply,
                       ResumeJob(returner, &coordinator_, window, &report));
  const auto next = std::make_shared<JobView>(
      options_, std::move(reply), coordinator_, *view, returner.held);
  AGG_RETURN_IF_ERROR(next->CheckSameJob(*view));
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

// The lease's thread: what the coordinator tells it, what becomes of a lease
// that is lost, and how everything ends.

namespace {

// `recovers`: whoever finds it lost joins again at the address.
Lease LeaseOf(const Membership::View& view, bool recovers) {
  Lease lease;
  lease.channel = view->push_channels().front();
  lease.epoch = view->epoch();
  lease.session = view->session();
  lease.duration = std::max(absl::Milliseconds(view->reply().lease_ms()),
                            absl::Milliseconds(30));
  lease.gone_if_broken = recovers && view->local(0);
  lease.transports = [view] { return view->transports(); };
  // Part of the view, and keeps it.
  lease.over = std::shared_ptr<CancelSource>(view, view->over());
  return lease;
}

// Why the event ends the session or its epoch; OK: it does not.
absl::Status EndBy(const v1::JobEvent& event, const ClientOptions& options,
                   const ShardName& name) {
  const bool resumes = options.recovery_window > absl::ZeroDuration();
  switch (event.kind()) {
    case v1::JobEvent::SHARD_LOST:
      return absl::UnavailableError(absl::StrCat(
          Shown(event.message()),
          resumes ? ""
                  : "; the job is over without it: restart it, Connect again "
                    "and Seed"));
    case v1::JobEvent::SUPERSEDED:
      return absl::AbortedError(absl::StrCat(
          ToString(name), ": superseded: another client joined as rank ",
          options.rank, "; give every worker a rank of its own"));
    case v1::JobEvent::EXPIRED:
      return absl::NotFoundError(
          absl::StrCat(ToString(name), ": the lease ran out",
                       resumes ? "" : "; Connect again to go on"));
    case v1::JobEvent::EVICTED:
      return absl::AbortedError(
          absl::StrCat(ToString(name), ": ", Shown(event.message()),
                       "; an operator ended this session"));
    default:
      return absl::OkStatus();
  }
}

}  // namespace

void Membership::Attend() {
  {
    MutexLock lock(&mutex_);
    attended_ = true;
  }
  LeaseOptions options;
  options.coordinator = name_;
  options.lease =
      LeaseOf(view(), options_.recovery_window > absl::ZeroDuration());
  options.reconnect_window = options_.reconnect_window;
  options.clock = clock_;
  options.on_event = [this](const v1::JobEvent& event) { OnEvent(event); };
  options.on_lost = [this](const absl::Status& why) { return OnLost(why); };
  MutexLock lock(&keeper_mutex_);
  keeper_ = std::make_unique<LeaseKeeper>(std::move(options));
}

absl::optional<Lease> Membership::OnLost(const absl::Status& why) {
  const View view = this->view();
  const bool recovers = options_.recovery_window > absl::ZeroDuration();
  if (!recovers && fate_.status().ok()) Finalize(Explain(why));
  // What has finished, or is left, has no lease; calls resume by themselves.
  if (!fate_.status().ok() || leaving_ || finished_) {
    EndAttendance();
    return absl::nullopt;
  }
  view->over()->Cancel(why);
  const absl::Time now = clock_->Now();
  const absl::optional<absl::Duration> pause =
      outage_.AfterFailure(now, now - resumed_at_);
  absl::Status status = TriedForRecovery(why, options_);
  if (pause.has_value()) {
    fate_.WaitFor(*pause).IgnoreError();
    status = Resume(view, absl::InfiniteFuture(), &outage_);
  }
  if (!status.ok()) Finalize(status);
  if (!status.ok() || finished_) {
    EndAttendance();
    return absl::nullopt;
  }
  resumed_at_ = clock_->Now();
  return LeaseOf(this->view(), recovers);
}

void Membership::EndAttendance() {
  MutexLock lock(&mutex_);
  attended_ = false;
  changed_.NotifyAll();
}

void Membership::OnEvent(const v1::JobEvent& event) {
  const std::optional<ClientEvent::Kind> kind = KindOf(event);
  if (!kind.has_value()) return;
  const absl::Status end = EndBy(event, options_, name_);
  const bool resumes = (kind == ClientEvent::Kind::kShardLost ||
                        kind == ClientEvent::Kind::kExpired) &&
                       options_.recovery_window > absl::ZeroDuration();
  if (resumes) {
    // Ends the lease's stream, too, so that OnLost follows and says so.
    view()->over()->Cancel(end);
    return;
  }
  if (!end.ok()) Finalize(end);
  if (kind == ClientEvent::Kind::kFinished) finished_ = true;
  // The open round may still end well.
  if (kind == ClientEvent::Kind::kDraining) draining_ = true;
  if (kind == ClientEvent::Kind::kSeedRole) view()->TakeSeedRole();
  Say(*kind, event.version(), Shown(event.message()));
}

void Membership::Say(ClientEvent::Kind kind, uint64_t version,
                     std::string message) const {
  if (options_.on_event) options_.on_event({kind, version, std::move(message)});
}

absl::Status Membership::Explain(const absl::Status& status) const {
  if (!draining_ || !absl::IsUnavailable(status) ||
      options_.recovery_window > absl::ZeroDuration()) {
    return status;
  }
  AGG_RETURN_IF_ERROR(fate_.status());
  return absl::UnavailableError(absl::StrCat(
      ToString(name_), " has shut down, as it had announced; the job is over ",
      "without it: restart it, Connect again and Seed"));
}

void Membership::Finalize(const absl::Status& reason) {
  fate_.Cancel(reason);
  MutexLock lock(&mutex_);
  // Open may have failed before the first view.
  if (view_ != nullptr) view_->over()->Cancel(fate_.status());
  changed_.NotifyAll();
}

void Membership::End(const absl::Status& reason) {
  Finalize(reason);
  MutexLock lock(&keeper_mutex_);
  keeper_.reset();
}

void Membership::NoteMade(uint64_t version, uint64_t made) {
  if (made == 0) return;
  MutexLock lock(&mutex_);
  made_[version] = made;
  constexpr size_t kMaxMade = 16;
  if (made_.size() > kMaxMade) made_.erase(made_.begin());
}

}  // namespace agg
