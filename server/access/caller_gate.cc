#include "server/access/caller_gate.h"

#include <utility>
#include <vector>

namespace agg {

std::shared_ptr<void> OpenCalls::Add(OpenCall call) {
  MutexLock lock(&mutex_);
  const uint64_t number = next_++;
  open_[number] = std::make_shared<const OpenCall>(std::move(call));
  return std::shared_ptr<void>(static_cast<void*>(this), [this, number](void*) {
    std::shared_ptr<const OpenCall> ended;  // destroyed without the lock
    MutexLock lock(&mutex_);
    const auto found = open_.find(number);
    if (found == open_.end()) return;
    ended = std::move(found->second);
    open_.erase(found);
  });
}

void OpenCalls::Recheck(
    const std::function<absl::Status(const OpenCall&)>& check) {
  std::vector<std::pair<uint64_t, std::shared_ptr<const OpenCall>>> calls;
  {
    MutexLock lock(&mutex_);
    calls.assign(open_.begin(), open_.end());
  }
  for (const auto& [number, call] : calls) {
    const absl::Status status = check(*call);
    if (status.ok()) continue;
    {
      MutexLock lock(&mutex_);
      if (open_.erase(number) == 0) continue;  // it has ended by itself
    }
    call->end(status);
  }
}

size_t OpenCalls::size() const {
  MutexLock lock(&mutex_);
  return open_.size();
}

const CallerGate* CallerGate::Open() {
  static const CallerGate* const open = new CallerGate(Parts());
  return open;
}

absl::StatusOr<Caller> CallerGate::Identify(const Credentials& credentials,
                                            const std::string& from,
                                            absl::string_view method) const {
  Caller nobody;
  nobody.from = from;
  if (!asks()) return nobody;
  DenialReason reason = DenialReason::kRole;
  absl::StatusOr<Caller> caller =
      parts_.identities->Resolve(credentials, &reason);
  if (!caller.ok()) {
    NoteDenial(nobody, reason, method, caller.status());
    return caller.status();
  }
  caller->from = from;
  const absl::Status status = MayCall(*caller, method);
  if (status.ok()) return caller;
  NoteDenial(*caller, DenialReason::kRole, method, status);
  return status;
}

absl::StatusOr<Caller> CallerGate::Admit(const Credentials& credentials,
                                         const std::string& from,
                                         absl::string_view method,
                                         std::shared_ptr<void>* share) const {
  absl::StatusOr<Caller> caller = Identify(credentials, from, method);
  const MethodRule* const rule = FindMethod(method);
  if (!caller.ok() || parts_.limiter == nullptr || share == nullptr ||
      rule == nullptr) {
    return caller;
  }
  DenialReason reason = DenialReason::kStreams;
  absl::StatusOr<std::shared_ptr<void>> taken =
      parts_.limiter->Take(*caller, *rule, &reason);
  if (!taken.ok()) {
    NoteDenial(*caller, reason, method, taken.status());
    return taken.status();
  }
  *share = *std::move(taken);
  return caller;
}

std::shared_ptr<void> CallerGate::KeepOpen(
    const Credentials& credentials, const Caller& caller,
    absl::string_view method,
    std::function<void(const absl::Status&)> end) const {
  const MethodRule* const rule = FindMethod(method);
  if (!asks() || parts_.open == nullptr || rule == nullptr ||
      rule->kind == CallKind::kAnswered) {
    return nullptr;
  }
  return parts_.open->Add({credentials, caller.from, std::string(method),
                           caller.identity, std::move(end)});
}

bool CallerGate::wants_fingerprints() const {
  return asks() && parts_.identities->wants_fingerprints();
}

absl::Status CallerGate::CheckAgain(const OpenCall& call) const {
  DenialReason reason = DenialReason::kRole;
  const absl::StatusOr<Caller> now =
      parts_.identities->Resolve(call.credentials, &reason);
  absl::Status status = now.status();
  if (status.ok() && now->identity != call.identity) {
    status = absl::UnauthenticatedError(
        "the credential is another identity's by now");
  }
  if (status.ok()) return status;
  Caller caller;
  caller.identity = call.identity;
  caller.from = call.from;
  NoteDenial(caller, reason, call.method, status);
  return status;
}

void CallerGate::Recheck() const {
  if (!asks() || parts_.open == nullptr) return;
  // Twice for each change: a call may have been admitted before it and be kept
  // after the first look.
  const uint64_t first = 2 * parts_.identities->Look();
  const uint64_t before = checked_.load();
  if (before == first + 1) return;
  checked_ = before == first ? first + 1 : first;
  parts_.open->Recheck(
      [this](const OpenCall& call) { return CheckAgain(call); });
}

int32_t CallerGate::max_sessions(const Caller& caller) const {
  return parts_.limiter == nullptr || !caller.known
             ? 0
             : parts_.limiter->Of(caller.identity).max_sessions;
}

int32_t CallerGate::max_sessions() const {
  return parts_.limiter == nullptr ? 0 : parts_.limiter->all().max_sessions;
}

absl::Status CallerGate::CheckSession(const Caller& caller,
                                      const absl::StatusOr<std::string>& owner,
                                      absl::string_view method,
                                      uint64_t session) const {
  if (!owner.ok()) return owner.status();
  if (MayUseSession(caller, *owner)) return absl::OkStatus();
  const absl::Status status = NotYourSession();
  NoteDenial(caller, DenialReason::kSession, method, status, -1, session);
  return status;
}

void CallerGate::NoteDenial(const Caller& caller, DenialReason reason,
                            absl::string_view method,
                            const absl::Status& status, int32_t rank,
                            uint64_t session) const {
  if (parts_.denials != nullptr) parts_.denials->Add(reason);
  if (parts_.audit == nullptr) return;
  AuditEvent event;
  event.who = caller.identity;
  event.from = caller.from;
  event.rank = rank;
  event.session = session;
  event.detail = std::string(method);
  event.outcome = status.ToString();
  parts_.audit->NoteDenial(std::move(event));
}

void CallerGate::NoteDone(const Caller& caller, AuditEvent event,
                          const absl::Status& status) const {
  if (parts_.audit == nullptr) return;
  event.who = caller.identity;
  event.from = caller.from;
  event.outcome = status.ToString();
  parts_.audit->Note(std::move(event));
}

std::vector<AuditEvent> CallerGate::Events(size_t limit) const {
  if (parts_.audit == nullptr) return {};
  return parts_.audit->Last(limit);
}

}  // namespace agg
