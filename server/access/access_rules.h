// Who may do what: the one table of calls and roles, and the one rule about
// sessions. Pure.
#ifndef AGG_SERVER_ACCESS_ACCESS_RULES_H_
#define AGG_SERVER_ACCESS_ACCESS_RULES_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace agg {

// What an identity may do, in six words.
enum class Role : uint8_t {
  kWorker,    // takes part in rounds
  kObserver,  // reads the model and the job's state
  kAdmin,     // changes the job while it runs
  kShard,     // is a part of the job itself
  kMetrics,   // reads metrics, and nothing else
  kRule       // decides an external rule, and nothing else
};

// A set of roles.
class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) bits_ |= Bit(role);
  }
  constexpr bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  constexpr bool Meets(Roles other) const { return (bits_ & other.bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr void Add(Role role) { bits_ |= Bit(role); }
  // "worker or observer"; "" of none.
  std::string Text(absl::string_view word) const;

  friend constexpr bool operator==(Roles a, Roles b) {
    return a.bits_ == b.bits_;
  }

 private:
  static constexpr uint8_t Bit(Role role) {
    return static_cast<uint8_t>(1 << static_cast<int>(role));
  }
  uint8_t bits_ = 0;
};

inline constexpr char kAllowedRoles[] =
    "\"worker\", \"observer\", \"admin\", \"shard\", \"metrics\", \"rule\"";

// The name that configurations use; nothing for a name that is none.
absl::string_view RoleName(Role role);
std::optional<Role> ParseRole(absl::string_view name);

// Who makes a call.
struct Caller {
  // Name in the configuration; "" where nobody is asked who they are.
  std::string identity;
  Roles roles;
  // False: no identities are configured, and everybody may do everything.
  bool known = false;
  std::string from;  // its address, for people

  bool may(Role role) const { return !known || roles.Has(role); }
};

// What reading pages of the HTTP port is called, and its metrics.
inline constexpr absl::string_view kHttpPages = "http/pages";
inline constexpr absl::string_view kHttpMetrics = "http/metrics";

enum class CallKind : uint8_t {
  kAnswered,  // at once
  kStream,
  kWaits,  // for the job, or for other shards
  kJoin    // waits, too
};

struct MethodRule {
  absl::string_view method;  // "agg.v1.Shard/Push"
  Roles roles;               // of which a caller needs one
  CallKind kind;
  // What a call may keep in the server's memory at most: a message of it that
  // has come in part, or an answer that its caller does not read.
  int64_t bytes;
};

// Returns the method's line; null if the table does not have it: then nobody
// may call it.
const MethodRule* FindMethod(absl::string_view method);
// Returns the roles of the method; nothing if the table does not have it.
std::optional<Roles> RolesOf(absl::string_view method);

// OK, or PERMISSION_DENIED that says which role is missing.
absl::Status MayCall(const Caller& caller, absl::string_view method);

// Whether the caller may act for a session that `owner` has joined: it is the
// owner, or may do what an admin may. A session that was joined when nobody was
// asked who they are (owner "") is anybody's.
bool MayUseSession(const Caller& caller, absl::string_view owner);

// PERMISSION_DENIED for a session for which it may not.
absl::Status NotYourSession();

}  // namespace agg

#endif  // AGG_SERVER_ACCESS_ACCESS_RULES_H_
