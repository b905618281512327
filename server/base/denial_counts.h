// How many calls and connections were refused, by reason. It stands between who
// refuses (server/rpc) and who shows (server/metrics), so that neither needs
// the other.
#ifndef AGG_SERVER_BASE_DENIAL_COUNTS_H_
#define AGG_SERVER_BASE_DENIAL_COUNTS_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace agg {

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

#endif  // AGG_SERVER_BASE_DENIAL_COUNTS_H_
