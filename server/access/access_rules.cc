#include "server/access/access_rules.h"

#include "absl/strings/str_cat.h"

namespace agg {
namespace {

struct MethodRoles {
  absl::string_view method;
  Roles roles;
};

constexpr Roles kWork = {Role::kWorker};
constexpr Roles kRead = {Role::kWorker, Role::kObserver, Role::kAdmin};
constexpr Roles kLook = {Role::kObserver, Role::kAdmin};
constexpr Roles kChange = {Role::kAdmin};
constexpr Roles kShards = {Role::kShard};

// A line for each method of proto/*.proto; a test holds it to that. A shard
// asks shard 0 for its status, too (P21).
constexpr MethodRoles kTable[] = {
    {"agg.v1.Coordinator/Join", kWork},
    {"agg.v1.Coordinator/Observe", kRead},
    {"agg.v1.Coordinator/Attend", kWork},
    {"agg.v1.Coordinator/Commit", kWork},
    {"agg.v1.Coordinator/WaitRound", kWork},
    {"agg.v1.Coordinator/Leave", kWork},
    {"agg.v1.Coordinator/GetStatus",
     {Role::kWorker, Role::kObserver, Role::kAdmin, Role::kShard}},
    {"agg.v1.Shard/Push", kWork},
    {"agg.v1.Shard/Pull", kRead},
    {"agg.v1.ShardControl/Attach", kShards},
    {"agg.v1.ShardControl/SetManifest", kShards},
    {"agg.v1.ShardControl/ReserveRow", kShards},
    {"agg.v1.ShardControl/SetSession", kShards},
    {"agg.v1.ShardControl/RunPhase", kShards},
    {"agg.v1.ShardControl/Probe", kShards},
    {"agg.v1.ShardControl/GetManifest", kShards},
    {"agg.v1.ShardControl/SetFacts", kShards},
    {"agg.v1.ShardControl/Replicate", kShards},
    {"agg.v1.ShardControl/Fetch", kShards},
    {"agg.v1.Admin/SetRule", kChange},
    {"agg.v1.Admin/EvictWorker", kChange},
    {"agg.v1.Admin/Drain", kChange},
    {"agg.v1.Admin/TakeCheckpoint", kChange},
    {"agg.v1.Admin/SetLogLevel", kChange},
    {"agg.v1.Admin/ListTensors", kLook},
    {"agg.v1.Admin/ListRounds", kLook},
    {"agg.v1.Admin/GetVersion", kLook},
    {"agg.v1.Admin/ListAudit", kChange},
    // Not a method: all that the HTTP port has but health.
    {kHttpPages, kLook},
};

}  // namespace

std::optional<Roles> RolesOf(absl::string_view method) {
  for (const MethodRoles& line : kTable) {
    if (line.method == method) return line.roles;
  }
  return std::nullopt;
}

absl::Status MayCall(const Caller& caller, absl::string_view method) {
  if (!caller.known) return absl::OkStatus();
  const std::optional<Roles> needed = RolesOf(method);
  if (needed.has_value() && caller.roles.Meets(*needed)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(method, " needs the role ",
                   needed.has_value() ? needed->Text("or") : "of nobody",
                   ", which identity \"", caller.identity, "\" does not have"));
}

bool MayUseSession(const Caller& caller, absl::string_view owner) {
  return !caller.known || owner.empty() || owner == caller.identity ||
         caller.roles.Has(Role::kAdmin);
}

absl::Status NotYourSession() {
  return absl::PermissionDeniedError(
      "the session belongs to another identity; allowed: the one that joined, "
      "or one with the role admin");
}

}  // namespace agg
