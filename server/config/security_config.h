// `security` of the configuration: who may connect, and how.
#ifndef AGG_SERVER_CONFIG_SECURITY_CONFIG_H_
#define AGG_SERVER_CONFIG_SECURITY_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/config.pb.h"
#include "proto/tls_options.h"
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

// Fills in defaults; those of `tls` only if it is there.
void CompleteSecurity(v1::JobConfig* config);

// INVALID_ARGUMENT with a line for each bad field: "field is value; allowed:
// ...". The files are not looked at: they are another host's, perhaps.
// REQUIRES: CompleteSecurity was called.
absl::StatusOr<SecuritySettings> MakeSecurity(const v1::JobConfig& config);

}  // namespace agg

#endif  // AGG_SERVER_CONFIG_SECURITY_CONFIG_H_
