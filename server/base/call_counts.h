// How many gRPC calls have ended, by method and code, and how many calls and
// connections were refused, by reason. It stands between who counts
// (server/rpc) and who shows (server/metrics), so that neither needs the other.
#ifndef AGG_SERVER_BASE_CALL_COUNTS_H_
#define AGG_SERVER_BASE_CALL_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"

namespace agg {

struct CallCount {
  std::string method;  // "agg.v1.Shard/Push"
  std::string code;    // "OK", "UNAVAILABLE": gRPC's names
  uint64_t number = 0;
};

// Thread-safe.
class CallCounts {
 public:
  // What the calls of all methods that were not declared are counted as, so
  // that no caller can make up names.
  static constexpr char kOther[] = "other";

  // Makes the method's count of OK, 0, and lets it be counted by name.
  void Declare(const std::string& method);
  // A call has ended. `code`: gRPC's number; others than 0 to 16 are UNKNOWN.
  void Add(const std::string& method, int code);
  // What there is, by method and code. A code has no entry before its first
  // call, except OK.
  std::vector<CallCount> counts() const;

 private:
  mutable Mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> counts_
      ABSL_GUARDED_BY(mutex_);
};

// Why a call or a connection was refused.
enum class DenialReason : uint8_t {
  kNoCredential,  // neither a token nor a certificate
  kBadToken,      // a token that nobody has
  kUnknownPeer,   // a certificate of no identity
  kDenied,        // the deny list has the identity or its certificate
  kExpired,       // the certificate of a connection is over
  kRole,          // the identity lacks the call's role
  kSession,       // the session belongs to another identity
  kRank,          // the rank's session does
  kHost,          // the HTTP port is asked for by another's name
  kJoin,          // what a Join brings, or asks for, does not fit the job
  // A limit was reached (P46).
  kSessions,
  kStreams,
  kWaitingCalls,
  kJoins,
  kBytes,
  kConnections,
  kOtherCalls  // of health and reflection
};
inline constexpr size_t kNumDenialReasons = 17;

// The label's value: "bad_token".
inline absl::string_view DenialName(DenialReason reason) {
  constexpr std::array<absl::string_view, kNumDenialReasons> kNames = {
      "no_credential",
      "bad_token",
      "unknown_peer",
      "denied",
      "expired",
      "role",
      "session",
      "rank",
      "host",
      "join",
      "max_sessions",
      "max_streams",
      "max_waiting_calls",
      "joins_per_second",
      "max_bytes_in_flight",
      "max_connections",
      "other_calls"};
  return kNames[static_cast<size_t>(reason)];
}

// Thread-safe.
class DenialCounts {
 public:
  void Add(DenialReason reason) { ++counts_[static_cast<size_t>(reason)]; }
  uint64_t count(DenialReason reason) const {
    return counts_[static_cast<size_t>(reason)].load();
  }
  // Number of identities in the configuration; 0: nobody is asked who they are.
  void set_num_identities(uint64_t number) { num_identities_ = number; }
  uint64_t num_identities() const { return num_identities_.load(); }

 private:
  std::array<std::atomic<uint64_t>, kNumDenialReasons> counts_ = {};
  std::atomic<uint64_t> num_identities_{0};
};

}  // namespace agg

#endif  // AGG_SERVER_BASE_CALL_COUNTS_H_
