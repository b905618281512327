// How much an identity, and all callers together, may take at a time (P46).
#ifndef AGG_SERVER_ACCESS_CALL_LIMITS_H_
#define AGG_SERVER_ACCESS_CALL_LIMITS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/access/access_rules.h"
#include "server/base/call_counts.h"
#include "server/base/clock.h"
#include "server/base/dcheck.h"
#include "server/base/mutex.h"

namespace agg {

// proto/config.proto, LimitsConfig, as plain values.
struct CallLimits {
  int32_t max_sessions = 0;
  int32_t max_streams = 0;
  int32_t max_waiting_calls = 0;
  double joins_per_second = 0.0;
  int64_t max_bytes_in_flight = 0;
};

// Returns the limits for all callers of a job together: several times what its
// workers need. It takes any number, since a configuration's may not have been
// checked yet: a number below 0 counts as 0, one above 2^20 as 2^20.
CallLimits DefaultLimits(int max_workers);
// Returns the limits for one identity, given those for all: three quarters of
// what can be used up, so that no identity alone keeps others out. It may have
// all sessions.
CallLimits ShareOf(const CallLimits& all);

// Allows `per_second` calls each second, and as many at once as come in kBurst.
// Thread-compatible.
class RateLimit {
 public:
  static constexpr absl::Duration kBurst = absl::Seconds(10);

  // The limit allows a full burst at `now`.
  RateLimit(double per_second, absl::Time now);
  bool Has(absl::Time now);
  // REQUIRES: Has.
  void Take() {
    AGG_DCHECK(left_ >= 1.0);
    left_ -= 1.0;
  }

 private:
  const double per_second_;
  const double most_;
  double left_;
  absl::Time filled_;
};

// Who takes how much now. Calls that workers and observers may not make have
// places of their own, so that operators and shards get in when all others are
// taken. Thread-safe.
class CallLimiter {
 public:
  static constexpr int kReservedStreams = 4096;
  static constexpr int kReservedWaitingCalls = 1024;

  // `of_identity` has limits by the identity's name. `clock` outlives it.
  CallLimiter(const CallLimits& all,
              const std::map<std::string, CallLimits>& of_identity,
              const Clock* clock);

  // What the call takes, until it is destroyed, before this object. A limit
  // error (field_error.h) if there is not as much, and *reason.
  absl::StatusOr<std::shared_ptr<void>> Take(const Caller& caller,
                                             const MethodRule& method,
                                             DenialReason* reason);
  const CallLimits& all() const { return limits_; }
  // Returns the identity's limits; those of all for a name that it does not
  // know.
  const CallLimits& Of(const std::string& identity) const;

 private:
  struct Account {
    Account(std::string name, const CallLimits& limits, absl::Time now)
        : name(std::move(name)),
          limits(limits),
          joins(limits.joins_per_second, now) {}
    const std::string name;  // for errors
    const CallLimits limits;
    RateLimit joins;
    int64_t streams = 0;
    int64_t waiting_calls = 0;
    int64_t bytes = 0;
  };

  absl::Status Check(const MethodRule& method, Account* account,
                     DenialReason* reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds what the call takes to the account (`sign` 1), or takes it off (-1).
  static void Book(const MethodRule& method, int sign, Account* account);
  void GiveBack(const MethodRule& method, Account* account, Account* own);

  const CallLimits limits_;
  const std::map<std::string, CallLimits> limits_of_;
  const Clock* const clock_;
  Mutex mutex_;
  Account all_ ABSL_GUARDED_BY(mutex_);
  Account reserved_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Account> of_identity_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_CALL_LIMITS_H_
