// Where every call of every service comes in: who calls, and may they (P45).
// Refusals are counted and audited here, and open calls are checked again when
// credentials have changed; what a connection says of its other end is
// server/rpc's to know (admit_call.h).
#ifndef AGG_SERVER_ACCESS_CALLER_GATE_H_
#define AGG_SERVER_ACCESS_CALLER_GATE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/access/access_rules.h"
#include "server/access/audit_trail.h"
#include "server/access/call_limits.h"
#include "server/access/identities.h"
#include "server/base/call_counts.h"
#include "server/base/mutex.h"

namespace agg {

// The calls that are open, with what their callers have shown: who is asked at
// the beginning of a call is asked once more when credentials have changed.
struct OpenCall {
  Credentials credentials;
  std::string from;
  std::string method;
  std::string identity;  // that it was admitted as
  // Ends it with a status; may come after its end, which changes nothing. Must
  // not call back.
  std::function<void(const absl::Status&)> end;
};

// Thread-safe.
class OpenCalls {
 public:
  // It is open until what is returned is destroyed, before this object.
  std::shared_ptr<void> Add(OpenCall call);
  // Ends those that `check` finds not to be OK, each once. No lock is held when
  // one is asked for or ended.
  void Recheck(const std::function<absl::Status(const OpenCall&)>& check);
  size_t size() const;

 private:
  mutable Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<const OpenCall>> open_
      ABSL_GUARDED_BY(mutex_);
};

// Thread-safe. A stream is admitted once, when it begins: its frames cost
// nothing more.
class CallerGate {
 public:
  struct Parts {
    Identities* identities = nullptr;  // null: nobody is asked who they are
    AuditTrail* audit = nullptr;       // null: nothing is kept
    DenialCounts* denials = nullptr;   // null: not counted
    CallLimiter* limiter = nullptr;    // null: no limits
    OpenCalls* open = nullptr;         // null: who was let in stays
  };

  // What is pointed to outlives the gate.
  explicit CallerGate(const Parts& parts) : parts_(parts) {}
  // One that lets everybody in and keeps nothing; never destroyed.
  static const CallerGate* Open();

  // Whether anybody is asked who they are, and whether anything is audited.
  bool asks() const { return parts_.identities != nullptr; }
  bool audits() const { return parts_.audit != nullptr; }

  // Who makes a call with these credentials, from that address, if they may
  // make it: UNAUTHENTICATED or PERMISSION_DENIED, counted and audited.
  // `method`: "agg.v1.Shard/Push". If nobody is asked, everybody may.
  // `share` gets what the call takes of the limits (P46), to be kept until it
  // ends: else RESOURCE_EXHAUSTED, counted and audited, too. Null: it takes
  // nothing.
  absl::StatusOr<Caller> Admit(const Credentials& credentials,
                               const std::string& from,
                               absl::string_view method,
                               std::shared_ptr<void>* share = nullptr) const;
  // A call that goes on was admitted, until what is returned is destroyed.
  // `end` as OpenCall's; null if nobody is asked, or open calls are not kept.
  std::shared_ptr<void> KeepOpen(
      const Credentials& credentials, const Caller& caller,
      absl::string_view method,
      std::function<void(const absl::Status&)> end) const;
  // Whether credentials should have the certificate's fingerprint.
  bool wants_fingerprints() const;
  // Ends the calls that go on of those who would not be admitted any more:
  // their token was taken away, or they are on the deny list. To be called from
  // time to time.
  void Recheck() const;
  // Sessions of the caller's identity, and of all; 0: not limited.
  int32_t max_sessions(const Caller& caller) const;
  int32_t max_sessions() const;
  // Whether `session`, which is `owner`'s, is the caller's to use; the owner's
  // error if there is one. PERMISSION_DENIED is counted and audited.
  absl::Status CheckSession(const Caller& caller,
                            const absl::StatusOr<std::string>& owner,
                            absl::string_view method, uint64_t session) const;
  // A call that somebody else has refused.
  void NoteDenial(const Caller& caller, DenialReason reason,
                  absl::string_view method, const absl::Status& status,
                  int32_t rank = -1, uint64_t session = 0) const;
  // Something was done, with that outcome; who and from are the caller's.
  void NoteDone(const Caller& caller, AuditEvent event,
                const absl::Status& status) const;
  // The newest `limit` events; 0: all that are kept.
  std::vector<AuditEvent> Events(size_t limit) const;

 private:
  absl::Status CheckAgain(const OpenCall& call) const;
  absl::StatusOr<Caller> Identify(const Credentials& credentials,
                                  const std::string& from,
                                  absl::string_view method) const;

  const Parts parts_;
  mutable std::atomic<uint64_t> checked_{0};  // Identities::Look of then
};

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_CALLER_GATE_H_
