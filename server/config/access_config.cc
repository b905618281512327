#include "server/config/access_config.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/access/call_limits.h"
#include "server/access/role.h"
#include "server/base/address.h"
#include "server/base/dcheck.h"
#include "server/base/field_error.h"
#include "server/config/limits_config.h"

namespace agg {
namespace {

// With less, the file would begin anew every few hundred lines.
constexpr int64_t kMinAuditBytes = 65536;
constexpr int kMaxIdentities = 256;
constexpr size_t kMaxSanBytes = 512;

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
         });
}

// `asked`: whoever connects is asked for a certificate.
void CheckSans(const std::string& path, const v1::IdentityConfig& config,
               bool asked, FieldErrors* errors) {
  for (int i = 0; i < config.san_size(); ++i) {
    const std::string& san = config.san(i);
    const size_t star = san.find('*');
    // A lone * would be every certificate that the CA has ever signed.
    const bool good = !san.empty() && san.size() <= kMaxSanBytes && star != 0 &&
                      (star == std::string::npos || star + 1 == san.size());
    if (good) continue;
    errors->Add(FieldError(
        absl::StrCat(path, ".san[", i, "]"), Quoted(san),
        "a SPIFFE URI or a DNS name, or its beginning with a * behind it"));
  }
  if (!asked && !config.san().empty() && config.token_file().empty()) {
    errors->Add(FieldError(absl::StrCat(path, ".san[0]"), Quoted(config.san(0)),
                           "without a token_file: only with "
                           "security.tls.client_ca, since nobody is asked for "
                           "a certificate else"));
  }
}

// Whether some name would be one of both.
bool Overlap(absl::string_view a, absl::string_view b) {
  const bool a_begins = absl::ConsumeSuffix(&a, "*");
  const bool b_begins = absl::ConsumeSuffix(&b, "*");
  if (a_begins && b_begins) {
    return absl::StartsWith(a, b) || absl::StartsWith(b, a);
  }
  if (a_begins) return absl::StartsWith(b, a);
  if (b_begins) return absl::StartsWith(a, b);
  return a == b;
}

// Who would a certificate with that name be?
void CheckOverlaps(const v1::SecurityConfig& security, FieldErrors* errors) {
  const auto& identities = security.identities();
  for (int i = 0; i < identities.size(); ++i) {
    for (int k = 0; k < identities[i].san_size(); ++k) {
      for (int other = 0; other < i; ++other) {
        for (const std::string& san : identities[other].san()) {
          if (!Overlap(identities[i].san(k), san)) continue;
          errors->Add(FieldError(
              absl::StrCat("security.identities[", i, "].san[", k, "]"),
              Quoted(identities[i].san(k)),
              absl::StrCat("names that are no other identity's: identity ",
                           Quoted(identities[other].name()), " has ",
                           Quoted(san))));
        }
      }
    }
  }
}

std::string TakeDenied(const v1::SecurityConfig& security,
                       FieldErrors* errors) {
  if (!security.denied_file().empty() && security.identities().empty()) {
    errors->Add(FieldError("security.denied_file",
                           Quoted(security.denied_file()),
                           "only with security.identities: nobody is asked who "
                           "they are else"));
  }
  return security.denied_file();
}

Roles TakeRoles(const std::string& path, const v1::IdentityConfig& config,
                FieldErrors* errors) {
  Roles roles;
  for (int i = 0; i < config.roles_size(); ++i) {
    const std::optional<Role> role = ParseRole(config.roles(i));
    if (role.has_value()) {
      roles.Add(*role);
    } else {
      errors->Add(FieldError(absl::StrCat(path, ".roles[", i, "]"),
                             Quoted(config.roles(i)), kAllowedRoles));
    }
  }
  if (config.roles().empty()) {
    errors->Add(FieldError(absl::StrCat(path, ".roles"), "empty",
                           absl::StrCat("one or more of ", kAllowedRoles)));
  }
  return roles;
}

IdentityOptions TakeIdentity(const std::string& path,
                             const v1::IdentityConfig& config, bool asked,
                             const CallLimits& share,
                             std::set<std::string>* names,
                             FieldErrors* errors) {
  if (!IsName(config.name()) || !names->insert(config.name()).second) {
    errors->Add(FieldError(absl::StrCat(path, ".name"), Quoted(config.name()),
                           "[A-Za-z0-9_.-]{1,64}, which no other identity has"
                           " (\"shard\" is that of shard_token_file)"));
  }
  CheckSans(path, config, asked, errors);
  if (config.san().empty() && config.token_file().empty()) {
    errors->Add(FieldError(absl::StrCat(path, ".token_file"), "\"\"",
                           "a file of tokens, where the identity has no san"));
  }
  IdentityOptions options;
  options.name = config.name();
  options.sans.assign(config.san().begin(), config.san().end());
  options.token_file = config.token_file();
  options.roles = TakeRoles(path, config, errors);
  const std::string limits = absl::StrCat(path, ".limits");
  options.limits =
      TakeLimits(limits, config.limits(), share, LeastOfOne(), errors);
  errors->Add(CheckField(config.limits().max_connections() == 0,
                         absl::StrCat(limits, ".max_connections"),
                         config.limits().max_connections(),
                         "0: only in security.limits, since connections have "
                         "no identity"));
  return options;
}

// A shard has to be able to say who it is, and be it the only one: shard 0 asks
// its own address who coordinates (P21).
void CheckShardCredential(const v1::JobConfig& config,
                          const AccessOptions& options, FieldErrors* errors) {
  const std::string& file = config.security().shard_token_file();
  if (!options.on()) {
    if (file.empty()) return;
    errors->Add(FieldError("security.shard_token_file", Quoted(file),
                           "only with security.identities"));
    return;
  }
  const bool by_certificate =
      !config.security().tls().client_ca().empty() &&
      std::any_of(options.identities.begin(), options.identities.end(),
                  [](const IdentityOptions& identity) {
                    return identity.roles.Has(Role::kShard) &&
                           !identity.sans.empty();
                  });
  if (!file.empty() || by_certificate) return;
  errors->Add(FieldError(
      "security.shard_token_file", "\"\"",
      "with security.identities: a file of tokens, or with "
      "security.tls.client_ca an identity with a san and the role \"shard\", "
      "which the shards' certificates have"));
}

// A shard presents its token to the others at these addresses.
void CheckShardAddresses(const v1::JobConfig& config, FieldErrors* errors) {
  const v1::SecurityConfig& security = config.security();
  if (security.shard_token_file().empty() || security.has_tls() ||
      security.insecure()) {
    return;
  }
  for (int i = 0; i < config.shards_size(); ++i) {
    const absl::StatusOr<Address> address = ParseAddress(config.shards(i));
    if (!address.ok() || IsLoopback(address->host)) continue;
    errors->Add(FieldError(
        absl::StrCat("shards[", i, "]"), Quoted(config.shards(i)),
        "a loopback address where security has a shard_token_file and no TLS, "
        "or any with security { insecure: true }: the token would cross the "
        "network in clear text"));
  }
}

bool TakeSwitch(absl::string_view field, const std::string& value,
                FieldErrors* errors) {
  if (value != "open" && value != "off") {
    errors->Add(FieldError(field, Quoted(value), "\"open\", \"off\""));
  }
  return value == "open";
}

AuditFileOptions TakeAudit(const v1::AuditConfig& config, FieldErrors* errors) {
  if (!config.path().empty() && config.path().back() == '/') {
    errors->Add(FieldError("security.audit.path", Quoted(config.path()),
                           "a file's path"));
  }
  errors->Add(CheckField(config.max_bytes() >= kMinAuditBytes,
                         "security.audit.max_bytes",
                         static_cast<double>(config.max_bytes()),
                         absl::StrCat(">= ", kMinAuditBytes)));
  return {config.path(), config.max_bytes()};
}

}  // namespace

void CompleteAccess(v1::JobConfig* config) {
  v1::SecurityConfig* const security = config->mutable_security();
  if (security->health().empty()) security->set_health("open");
  if (security->reflection().empty()) {
    security->set_reflection(security->identities().empty() ? "open" : "off");
  }
  if (security->audit().max_bytes() == 0) {
    security->mutable_audit()->set_max_bytes(int64_t{64} << 20);
  }
}

absl::StatusOr<AccessOptions> MakeAccessOptions(const v1::JobConfig& config) {
  AGG_DCHECK(!config.publish().empty());
  const v1::SecurityConfig& security = config.security();
  FieldErrors errors;
  AccessOptions options;
  if (security.identities_size() > kMaxIdentities) {
    return FieldError("number of security.identities",
                      absl::StrCat(security.identities_size()),
                      absl::StrCat("0 to ", kMaxIdentities));
  }
  const bool asked = !security.tls().client_ca().empty();
  // Numbers that no job can have are errors of their own (options.cc).
  const int32_t workers = std::clamp(config.workers(), 1, kMaxWorkers);
  const int32_t most = std::clamp(config.max_workers(), workers, kMaxWorkers);
  options.limits =
      TakeLimits("security.limits", security.limits(), DefaultLimits(most),
                 LeastOfAll(workers), &errors);
  options.max_connections =
      TakeMaxConnections(security.limits(), workers, &errors);
  const CallLimits share = ShareOf(options.limits);
  std::set<std::string> names = {kShardIdentity};
  for (int i = 0; i < security.identities_size(); ++i) {
    options.identities.push_back(
        TakeIdentity(absl::StrCat("security.identities[", i, "]"),
                     security.identities(i), asked, share, &names, &errors));
  }
  CheckOverlaps(security, &errors);
  CheckShardCredential(config, options, &errors);
  CheckShardAddresses(config, &errors);
  options.shard_token_file = security.shard_token_file();
  options.denied_file = TakeDenied(security, &errors);
  options.health = TakeSwitch("security.health", security.health(), &errors);
  options.reflection =
      TakeSwitch("security.reflection", security.reflection(), &errors);
  options.audit = TakeAudit(security.audit(), &errors);
  if (!errors.empty()) return errors.status();
  return options;
}

}  // namespace agg
