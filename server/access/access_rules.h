// Who may do what: the one table of calls and roles, and the one rule about
// sessions. Pure.
#ifndef AGG_SERVER_ACCESS_ACCESS_RULES_H_
#define AGG_SERVER_ACCESS_ACCESS_RULES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/access/role.h"

namespace agg {

// Who makes a call.
struct Caller {
  // Of the configuration; "": nobody is asked who they are.
  std::string identity;
  Roles roles;
  // False: no identities are configured, and everybody may do everything.
  bool known = false;
  std::string from;  // its address, for people

  bool may(Role role) const { return !known || roles.Has(role); }
};

// What reading pages of the HTTP port is called.
inline constexpr char kHttpPages[] = "http/pages";

// The roles of which a caller of the method needs one: "agg.v1.Shard/Push".
// Nothing: the table does not have it, and nobody may call it.
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
