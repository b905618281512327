// `security` of the configuration: who may connect, and how, and who may do
// what, and how much of it.
#ifndef AGG_SERVER_CONFIG_SECURITY_CONFIG_H_
#define AGG_SERVER_CONFIG_SECURITY_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/config.pb.h"
#include "proto/tls_options.h"
#include "server/access/call_limits.h"
#include "server/access/identities.h"
#include "server/base/field_error.h"
#include "server/config/config_fields.h"
#include "server/tls/tls_files.h"

namespace agg {

// Settings of the port that serves metrics and pages.
struct HttpSettings {
  enum class Tensors { kAuto, kShown, kHidden };
  bool insecure = false;             // plain, also beyond loopback, is meant
  bool asks = false;                 // who reads shows a token of an identity
  Tensors tensors = Tensors::kAuto;  // their names
  // Names by which the port may be asked for, besides its own; "*": any.
  std::vector<std::string> hosts = {};
};

struct SecuritySettings {
  TlsFiles files;    // of the ports; no certificate: no TLS
  TlsOptions peers;  // of calls to other shards; likewise
  absl::Duration reload = absl::Seconds(60);
  bool insecure = false;  // beyond loopback without TLS is meant
  HttpSettings http;

  bool tls() const { return !files.certificate.empty(); }
};

// Both read their fields, and set what `config`, whose fields these are, leaves
// out: of `tls` only if it is there. They add a line for each bad field: "field
// is value; allowed: ..."; so are addresses of shards to which a token would go
// in clear text. The files are not looked at: they are another host's, perhaps.
void ReadSecurity(const v1::JobConfig& config, ConfigFields* fields,
                  SecuritySettings* settings, FieldErrors* errors);
void ReadAccess(const v1::JobConfig& config, ConfigFields* fields,
                AccessOptions* options, FieldErrors* errors);

// Most workers of a job: a slice's compensated Gram must fit into a message.
inline constexpr int32_t kMaxWorkers = 512;

// The least that may be set as limits of all callers, with which `workers` of
// them can train, also where one identity, which has three quarters of it
// (ShareOf), has them all. REQUIRES: 1 to kMaxWorkers.
CallLimits LeastOfAll(int32_t workers);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_SECURITY_CONFIG_H_
