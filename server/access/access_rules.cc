#include "server/access/access_rules.h"

#include <array>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace agg {

namespace {

constexpr std::array<absl::string_view, 6> kNames = {
    "worker", "observer", "admin", "shard", "metrics", "rule"};

}  // namespace

absl::string_view RoleName(Role role) {
  return kNames[static_cast<size_t>(role)];
}

std::optional<Role> ParseRole(absl::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

std::string Roles::Text(absl::string_view word) const {
  std::vector<absl::string_view> names;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (Has(static_cast<Role>(i))) names.push_back(kNames[i]);
  }
  return absl::StrJoin(names, absl::StrCat(" ", word, " "));
}

namespace {

constexpr Roles kWork = {Role::kWorker};
constexpr Roles kRead = {Role::kWorker, Role::kObserver, Role::kAdmin};
constexpr Roles kLook = {Role::kObserver, Role::kAdmin};
constexpr Roles kChange = {Role::kAdmin};
constexpr Roles kShards = {Role::kShard};

// A message (proto/byte_buffer_frame.h), as those that carry a manifest may be;
// the state of 512 workers; a frame's slices are the version's own memory, so
// that a pull keeps what is encrypted; the numbers of a reduction; an outcome.
constexpr int64_t kMessage = int64_t{8} << 20;
constexpr int64_t kState = int64_t{256} << 10;
constexpr int64_t kPull = int64_t{256} << 10;
constexpr int64_t kNumbers = int64_t{256} << 10;
constexpr int64_t kOutcome = int64_t{16} << 10;

constexpr CallKind kNow = CallKind::kAnswered;
constexpr CallKind kStream = CallKind::kStream;
constexpr CallKind kWaits = CallKind::kWaits;

// A line for each method of proto/*.proto; a test holds it to that. A shard
// asks shard 0 for its status, too (P21).
constexpr MethodRule kTable[] = {
    {"agg.v1.Coordinator/Join", kWork, CallKind::kJoin, kMessage},
    {"agg.v1.Coordinator/Observe", kRead, kNow, kMessage},
    {"agg.v1.Coordinator/Attend", kWork, kStream, kOutcome},
    {"agg.v1.Coordinator/Commit", kWork, kWaits, kOutcome},
    {"agg.v1.Coordinator/WaitRound", kWork, kWaits, kOutcome},
    {"agg.v1.Coordinator/Leave", kWork, kWaits, kOutcome},
    {"agg.v1.Coordinator/GetStatus",
     {Role::kWorker, Role::kObserver, Role::kAdmin, Role::kShard},
     kNow,
     kState},
    {"agg.v1.Reductions/Reduce", kWork, kWaits, kNumbers},
    {"agg.v1.ExternalRules/ServeRule", {Role::kRule}, kWaits, kMessage},
    {"agg.v1.Shard/Push", kWork, kStream, kMessage},
    {"agg.v1.Shard/Pull", kRead, kStream, kPull},
    {"agg.v1.ShardControl/Attach", kShards, kStream, kMessage},
    {"agg.v1.ShardControl/RunPhase", kShards, kStream, kMessage},
    {"agg.v1.ShardControl/Probe", kShards, kNow, kOutcome},
    {"agg.v1.ShardControl/Replicate", kShards, kStream, kMessage},
    {"agg.v1.ShardControl/Fetch", kShards, kStream, kPull},
    {"agg.v1.Admin/SetRule", kChange, kWaits, kOutcome},
    {"agg.v1.Admin/EvictWorker", kChange, kWaits, kOutcome},
    {"agg.v1.Admin/Drain", kChange, kNow, kOutcome},
    {"agg.v1.Admin/TakeCheckpoint", kChange, kWaits, kOutcome},
    {"agg.v1.Admin/Restore", kChange, kWaits, kOutcome},
    {"agg.v1.Admin/Resume", kChange, kWaits, kOutcome},
    {"agg.v1.Admin/SetLogLevel", kChange, kNow, kOutcome},
    {"agg.v1.Admin/ListTensors", kLook, kNow, kMessage},
    {"agg.v1.Admin/ListRounds", kLook, kNow, kMessage},
    {"agg.v1.Admin/GetVersion", kLook, kNow, kOutcome},
    {"agg.v1.Admin/Describe", kChange, kNow, kMessage},
    {"agg.v1.Admin/ListAudit", kChange, kNow, kMessage},
    // Not methods: all that the HTTP port has but health.
    {kHttpPages, kLook, kNow, kOutcome},
    {kHttpMetrics,
     {Role::kMetrics, Role::kObserver, Role::kAdmin},
     kNow,
     kOutcome},
};

}  // namespace

const MethodRule* FindMethod(absl::string_view method) {
  for (const MethodRule& line : kTable) {
    if (line.method == method) return &line;
  }
  return nullptr;
}

std::optional<Roles> RolesOf(absl::string_view method) {
  const MethodRule* const found = FindMethod(method);
  if (found == nullptr) return std::nullopt;
  return found->roles;
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
