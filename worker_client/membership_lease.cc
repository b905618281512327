// The lease's thread: what the coordinator tells it, what becomes of a lease
// that is lost, and how everything ends.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/utf8.h"
#include "worker_client/client_event.h"
#include "worker_client/job_messages.h"
#include "worker_client/membership.h"
#include "worker_client/resume_call.h"

namespace agg {
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
  if (!options_.on_event) return;
  ClientEvent event;
  event.kind = kind;
  event.version = version;
  event.message = std::move(message);
  options_.on_event(event);
}

absl::Status Membership::Explain(const absl::Status& status) const {
  if (!draining_ || !absl::IsUnavailable(status) ||
      options_.recovery_window > absl::ZeroDuration()) {
    return status;
  }
  const absl::Status fate = fate_.status();
  if (!fate.ok()) return fate;
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
