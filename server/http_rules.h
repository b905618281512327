// How the HTTP port is served: what the configuration's security means for it.
#ifndef AGG_SERVER_HTTP_RULES_H_
#define AGG_SERVER_HTTP_RULES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/config/security_config.h"

namespace agg {

struct HttpRules {
  std::string bind;            // the host that it listens on
  bool tls = false;            // with the certificate of security.tls
  bool asks = false;           // for a token
  bool shows_tensors = false;  // their names
  // Others reach it without TLS.
  bool insecure = false;
  // Browsers are told to come with TLS alone: not on loopback, nor where they
  // come by its name, which other programs' ports have, too.
  bool strict = false;
};

// Pure. `metrics_bind`: of the configuration, "": loopback, the one that gRPC
// is on where that is `grpc_bind`.
HttpRules RulesOfHttp(const SecuritySettings& security,
                      const std::string& metrics_bind,
                      const std::string& grpc_bind);

// The HTTP port of shard `ordinal` where the configuration, which is the same
// for all shards, says `port` (not 0): the next one for each shard before it
// that is on the same host by its address in `shards` ("host:port"; all of
// loopback is one host), so that shards of one host have a port each. May be
// above 65535, which nobody can listen on. Pure.
int HttpPort(int port, const std::vector<std::string>& shards, int ordinal);

// The names by which the port may be asked for without TLS and identities, with
// those of the configuration and `own`, this machine's: `localhost` and
// addresses count without being here.
std::vector<std::string> HostsOf(const SecuritySettings& security,
                                 const std::string& bind,
                                 const std::vector<std::string>& shards,
                                 const std::string& own);

// OK, or PERMISSION_DENIED for a Host header that names none of `names` ("*":
// any), no address and no localhost: a page of another site makes a browser ask
// here for its own name, which it has had point here. "": there is none, and it
// is no browser. Pure.
absl::Status CheckHostHeader(absl::string_view host,
                             const std::vector<std::string>& names);

// INVALID_ARGUMENT if others could reach it without TLS, and nobody has said
// that this is meant.
absl::Status CheckHttp(const HttpRules& rules,
                       const SecuritySettings& security);

// Logs what is unsafe about it.
void WarnAboutHttp(const HttpRules& rules);

}  // namespace agg

#endif  // AGG_SERVER_HTTP_RULES_H_
