// One thread makes one Attend call after another. AttendCall is the state of
// one; the lease's clock outlives it.
//
// With gRPC's epoll1 one thread of a process waits for all of its sockets, and
// hands each event to the thread that wants it: two context switches in place
// of none. So this thread does not wait in gRPC while nothing is under way on
// its stream, but looks there from time to time.
#include "worker_client/lease_keeper.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "proto/agg.grpc.pb.h"
#include "worker_client/retry.h"

namespace agg {
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
// To gRPC, a negative time since the Unix epoch is the infinite future.
constexpr absl::Time kAtOnce = absl::UnixEpoch();

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
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
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
    absl::Status over = lease.over->status();
    if (!over.ok()) return over;
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
    absl::Status lost = GiveUp(lease, status);
    if (!lost.ok()) return lost;
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
    lost = GiveUp(lease, status);
    if (!lost.ok()) return lost;
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

}  // namespace agg
