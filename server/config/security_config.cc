// What fields need each other is checked here; files, where they are used.
#include "server/config/security_config.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/access/access_rules.h"
#include "server/base/address.h"
#include "server/base/dcheck.h"

namespace agg {
namespace {

// Each look reads three files.
constexpr double kMinReloadSeconds = 0.01;

void ReadTls(const v1::JobConfig& config, ConfigFields* fields,
             SecuritySettings* settings, FieldErrors* errors) {
  const v1::TlsConfig& tls = config.security().tls();
  if (tls.certificate().empty()) {
    errors->Add(FieldError("security.tls.certificate", "\"\"",
                           "the path of a PEM file"));
  }
  if (tls.key().empty()) {
    errors->Add(
        FieldError("security.tls.key", "\"\"", "the path of a PEM file"));
  }
  fields->Seconds("security.tls.reload_seconds", &settings->reload,
                  AtLeast(kMinReloadSeconds), "finite, >= 0.01");
  // Shard 0 alone calls itself, too: a second coordinator would answer there.
  if (tls.ca().empty() && tls.client_ca().empty()) {
    errors->Add(FieldError("security.tls.ca", "\"\"",
                           "the path of a PEM file with the CA of the shards' "
                           "certificates, here or as client_ca"));
  }
  if (config.security().insecure()) {
    errors->Add(
        FieldError("security.insecure", "true", "without security.tls"));
  }
  settings->files.certificate = tls.certificate();
  settings->files.key = tls.key();
  settings->files.ca = tls.client_ca();
  settings->files.certificate_field = "security.tls.certificate";
  settings->files.key_field = "security.tls.key";
  settings->files.ca_field = "security.tls.client_ca";
  settings->peers.ca = tls.ca().empty() ? tls.client_ca() : tls.ca();
  settings->peers.certificate = tls.certificate();
  settings->peers.key = tls.key();
  settings->peers.reload = settings->reload;
}

void ReadHttp(const v1::SecurityConfig& security, ConfigFields* fields,
              HttpSettings* settings, FieldErrors* errors) {
  const v1::HttpConfig& http = security.http();
  settings->insecure = http.insecure() || security.insecure();
  settings->asks = !security.identities().empty();
  fields->Choice("security.http.pages", {{"identities", true}, {"open", false}},
                 &settings->asks);
  if (settings->asks && security.identities().empty()) {
    errors->Add(FieldError("security.http.pages", "\"identities\"",
                           "only with security.identities"));
  }
  for (int i = 0; i < http.hosts_size(); ++i) {
    const std::string field = absl::StrCat("security.http.hosts[", i, "]");
    if (http.hosts(i) != "*") errors->Add(CheckHost(field, http.hosts(i)));
    settings->hosts.push_back(http.hosts(i));
  }
  fields->Choice("security.http.tensors",
                 {{"auto", HttpSettings::Tensors::kAuto},
                  {"shown", HttpSettings::Tensors::kShown},
                  {"hidden", HttpSettings::Tensors::kHidden}},
                 &settings->tensors);
}

}  // namespace

void ReadSecurity(const v1::JobConfig& config, ConfigFields* fields,
                  SecuritySettings* settings, FieldErrors* errors) {
  settings->insecure = config.security().insecure();
  ReadHttp(config.security(), fields, &settings->http, errors);
  if (config.security().has_tls()) ReadTls(config, fields, settings, errors);
}

namespace {

// Three quarters of it (ShareOf) have room for a Join beside a Push, 8 MiB
// each, and for what else a worker has open. With less a call would be refused
// for ever.
constexpr int64_t kMinBytes = int64_t{32} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostCalls = 1000000;
constexpr double kMinJoins = 0.01;
// For shards, operators and one worker.
constexpr int64_t kMinConnections = 16;
// A client has three to shard 0 at most (worker_client/job_view.cc), and an
// eighth of all is for hosts with few of them (connection_listener.h).
constexpr int64_t kConnectionsPerWorker = 4;
// What a worker has open at shard 0 at a time: one of each, and but for the
// Commit for as long as it is in.
constexpr const char* kStreamsOfWorker[] = {
    "agg.v1.Coordinator/Attend", "agg.v1.Shard/Push", "agg.v1.Shard/Pull"};
constexpr char kCommit[] = "agg.v1.Coordinator/Commit";
constexpr char kJoin[] = "agg.v1.Coordinator/Join";

// The least that may be set of an identity: a call of each kind.
CallLimits LeastOfOne() {
  CallLimits least;
  least.max_sessions = 1;
  least.max_streams = 1;
  least.max_waiting_calls = 1;
  least.joins_per_second = kMinJoins;
  least.max_bytes_in_flight = kMinBytes;
  return least;
}

}  // namespace

CallLimits LeastOfAll(int32_t workers) {
  AGG_DCHECK(workers >= 1 && workers <= kMaxWorkers);
  int64_t of_worker = FindMethod(kCommit)->bytes;
  for (const char* stream : kStreamsOfWorker) {
    of_worker += FindMethod(stream)->bytes;
  }
  CallLimits least = LeastOfOne();
  least.max_sessions = workers;
  // Three quarters are Attend, Push and Pull of each.
  least.max_streams = 4 * workers;
  // Three quarters, which are rounded down, are a Commit of each.
  least.max_waiting_calls = 2 * workers;
  // Someone who comes back joins beside the others.
  const int64_t bytes = workers * of_worker + FindMethod(kJoin)->bytes;
  least.max_bytes_in_flight = std::max(kMinBytes, bytes / 3 * 4 + 4);
  return least;
}

namespace {

// A field that is 0, or from `least` to `most`.
template <typename Number>
Number Take(absl::string_view path, absl::string_view field, Number value,
            Number otherwise, Number least, Number most, FieldErrors* errors) {
  if (value == 0) return otherwise;
  // Written so that a NaN is refused.
  if (!(value >= least && value <= most)) {
    errors->Add(
        FieldError(absl::StrCat(path, ".", field), absl::StrCat(value),
                   absl::StrCat("0 (the default), or ", least, " to ", most)));
  }
  return value;
}

// What is 0 is as in `otherwise`, what is below `least` is bad. `path` is that
// of the message: "security.limits".
CallLimits TakeLimits(absl::string_view path, const v1::LimitsConfig& config,
                      const CallLimits& otherwise, const CallLimits& least,
                      FieldErrors* errors) {
  CallLimits limits;
  const int32_t most = kMostCalls;
  limits.max_sessions =
      Take(path, "max_sessions", config.max_sessions(), otherwise.max_sessions,
           least.max_sessions, most, errors);
  limits.max_streams =
      Take(path, "max_streams", config.max_streams(), otherwise.max_streams,
           least.max_streams, most, errors);
  limits.max_waiting_calls =
      Take(path, "max_waiting_calls", config.max_waiting_calls(),
           otherwise.max_waiting_calls, least.max_waiting_calls, most, errors);
  limits.joins_per_second =
      Take(path, "joins_per_second", config.joins_per_second(),
           otherwise.joins_per_second, least.joins_per_second,
           static_cast<double>(kMostCalls), errors);
  limits.max_bytes_in_flight =
      Take(path, "max_bytes_in_flight",
           static_cast<int64_t>(config.max_bytes_in_flight()),
           otherwise.max_bytes_in_flight, least.max_bytes_in_flight, kMostBytes,
           errors);
  return limits;
}

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

}  // namespace

void ReadAccess(const v1::JobConfig& config, ConfigFields* fields,
                AccessOptions* options, FieldErrors* errors) {
  const v1::SecurityConfig& security = config.security();
  if (security.identities_size() > kMaxIdentities) {
    return errors->Add(FieldError("number of security.identities",
                                  absl::StrCat(security.identities_size()),
                                  absl::StrCat("0 to ", kMaxIdentities)));
  }
  const bool asked = !security.tls().client_ca().empty();
  // Numbers that no job can have are errors of their own (options.cc).
  const int32_t workers = std::clamp(config.workers(), 1, kMaxWorkers);
  const int32_t most = std::clamp(config.max_workers(), workers, kMaxWorkers);
  options->limits =
      TakeLimits("security.limits", security.limits(), DefaultLimits(most),
                 LeastOfAll(workers), errors);
  options->max_connections = static_cast<int32_t>(Take<int64_t>(
      "security.limits", "max_connections", security.limits().max_connections(),
      options->max_connections,
      std::max(kMinConnections, kConnectionsPerWorker * workers), kMostCalls,
      errors));
  const CallLimits share = ShareOf(options->limits);
  std::set<std::string> names = {kShardIdentity};
  for (int i = 0; i < security.identities_size(); ++i) {
    options->identities.push_back(
        TakeIdentity(absl::StrCat("security.identities[", i, "]"),
                     security.identities(i), asked, share, &names, errors));
  }
  CheckOverlaps(security, errors);
  CheckShardCredential(config, *options, errors);
  CheckShardAddresses(config, errors);
  options->shard_token_file = security.shard_token_file();
  options->denied_file = TakeDenied(security, errors);
  fields->Choice("security.health", {{"open", true}, {"off", false}},
                 &options->health);
  options->reflection = security.identities().empty();
  fields->Choice("security.reflection", {{"open", true}, {"off", false}},
                 &options->reflection);
  fields->Text("security.audit.path", &options->audit.path, IsFilePath,
               "a file's path");
  fields->Number("security.audit.max_bytes", &options->audit.max_bytes,
                 AtLeast(kMinAuditBytes), absl::StrCat(">= ", kMinAuditBytes));
}

}  // namespace agg
