// One account for all, one for what is reserved, one for each identity: a call
// is booked on one of the first two, and on its identity's.
#include "server/access/call_limits.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"

namespace agg {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Far above what a job may have (server/config/options.h), and far below what
// 16 calls for each would need more than 32 bits for.
constexpr int kMostDefaultWorkers = 1 << 20;

CallLimits ReservedLimits() {
  CallLimits limits;
  limits.max_streams = CallLimiter::kReservedStreams;
  limits.max_waiting_calls = CallLimiter::kReservedWaitingCalls;
  // A part is copied over calls of their own limits
  // (server/rpc/phase_conversion.h).
  limits.max_bytes_in_flight = std::numeric_limits<int64_t>::max();
  return limits;
}

absl::Status Full(const char* limit, const std::string& of, int64_t taken,
                  int64_t allowed) {
  return LimitError(limit, of, absl::StrCat(taken),
                    absl::StrCat(allowed, " at a time"));
}

}  // namespace

CallLimits DefaultLimits(int max_workers) {
  const int64_t workers = std::clamp(max_workers, 0, kMostDefaultWorkers);
  CallLimits limits;
  limits.max_sessions = static_cast<int32_t>(workers);
  limits.max_streams = static_cast<int32_t>(1024 + 16 * workers);
  limits.max_waiting_calls = static_cast<int32_t>(8192 + 16 * workers);
  limits.joins_per_second =
      std::max(100.0, 10.0 * static_cast<double>(workers));
  // As gRPC's memory is bounded (server/rpc/transport_settings.cc).
  limits.max_bytes_in_flight = (256 + 16 * workers) * kMiB;
  return limits;
}

CallLimits ShareOf(const CallLimits& all) {
  CallLimits limits = all;
  limits.max_streams = std::max(all.max_streams / 4 * 3, 1);
  limits.max_waiting_calls = std::max(all.max_waiting_calls / 4 * 3, 1);
  limits.joins_per_second = all.joins_per_second / 4 * 3;
  limits.max_bytes_in_flight = all.max_bytes_in_flight / 4 * 3;
  return limits;
}

RateLimit::RateLimit(double per_second, absl::Time now)
    : per_second_(per_second),
      most_(std::max(per_second * absl::ToDoubleSeconds(kBurst), 1.0)),
      left_(most_),
      filled_(now) {}

bool RateLimit::Has(absl::Time now) {
  if (now > filled_) {
    left_ = std::min(
        most_, left_ + per_second_ * absl::ToDoubleSeconds(now - filled_));
    filled_ = now;
  }
  return left_ >= 1.0;
}

CallLimiter::CallLimiter(const CallLimits& all,
                         const std::map<std::string, CallLimits>& of_identity,
                         const Clock* clock)
    : limits_(all),
      limits_of_(of_identity),
      clock_(clock),
      all_("all callers", all, clock->Now()),
      reserved_("admins and shards", ReservedLimits(), clock->Now()) {
  for (const auto& [name, limits] : of_identity) {
    of_identity_.try_emplace(name, absl::StrCat("identity \"", name, "\""),
                             limits, clock->Now());
  }
}

const CallLimits& CallLimiter::Of(const std::string& identity) const {
  const auto found = limits_of_.find(identity);
  return found == limits_of_.end() ? limits_ : found->second;
}

absl::Status CallLimiter::Check(const MethodRule& method, Account* account,
                                DenialReason* reason) {
  const CallLimits& limits = account->limits;
  if (method.kind == CallKind::kStream &&
      account->streams >= limits.max_streams) {
    *reason = DenialReason::kStreams;
    return Full("max_streams", account->name, account->streams,
                limits.max_streams);
  }
  if ((method.kind == CallKind::kWaits || method.kind == CallKind::kJoin) &&
      account->waiting_calls >= limits.max_waiting_calls) {
    *reason = DenialReason::kWaitingCalls;
    return Full("max_waiting_calls", account->name, account->waiting_calls,
                limits.max_waiting_calls);
  }
  if (method.bytes > limits.max_bytes_in_flight - account->bytes) {
    *reason = DenialReason::kBytes;
    return Full("max_bytes_in_flight", account->name, account->bytes,
                limits.max_bytes_in_flight);
  }
  if (method.kind == CallKind::kJoin && !account->joins.Has(clock_->Now())) {
    *reason = DenialReason::kJoins;
    return LimitError("joins_per_second", account->name, "more than that",
                      absl::StrCat(limits.joins_per_second));
  }
  return absl::OkStatus();
}

void CallLimiter::Book(const MethodRule& method, int sign, Account* account) {
  if (method.kind == CallKind::kStream) {
    account->streams += sign;
  } else if (method.kind != CallKind::kAnswered) {  // it waits
    account->waiting_calls += sign;
  }
  account->bytes += sign * method.bytes;
}

absl::StatusOr<std::shared_ptr<void>> CallLimiter::Take(
    const Caller& caller, const MethodRule& method, DenialReason* reason) {
  const bool everybodys = method.roles.Meets({Role::kWorker, Role::kObserver});
  Account* account;
  Account* own = nullptr;
  {
    MutexLock lock(&mutex_);
    account = everybodys ? &all_ : &reserved_;
    const auto found = of_identity_.find(caller.identity);
    // What is reserved is no identity's to fill.
    if (everybodys && caller.known && found != of_identity_.end()) {
      own = &found->second;
    }
    absl::Status status;
    if (own != nullptr) status = Check(method, own, reason);
    if (status.ok()) status = Check(method, account, reason);
    if (!status.ok()) return status;
    for (Account* one : {account, own}) {
      if (one == nullptr) continue;
      Book(method, 1, one);
      if (method.kind == CallKind::kJoin) one->joins.Take();
    }
  }
  return std::shared_ptr<void>(
      static_cast<void*>(this),
      [this, method, account, own](void*) { GiveBack(method, account, own); });
}

void CallLimiter::GiveBack(const MethodRule& method, Account* account,
                           Account* own) {
  MutexLock lock(&mutex_);
  Book(method, -1, account);
  if (own != nullptr) Book(method, -1, own);
}

}  // namespace agg
