// How the client opens connections: in one place, so that all have the same
// limits and timeouts.
#ifndef AGG_WORKER_CLIENT_CHANNEL_H_
#define AGG_WORKER_CLIENT_CHANNEL_H_

#include <grpcpp/channel.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/call_token.h"
#include "proto/tls_options.h"

namespace agg {

// FAILED_PRECONDITION, naming both, in a fork of a process that has connected a
// client: gRPC's threads stay behind, and a call would wait for them for ever.
// OK elsewhere. Thread-safe.
absl::Status CheckNotForked();

// Remembers that this process connects a client. REQUIRES: CheckNotForked().
void NoteConnecting();

// --- The token that a client presents (P45), from a file that is read anew
// when it changes. One reader for each file of the process.
//
// Returns `token_file`, or AGG_TOKEN_FILE of the environment in place of "",
// for the functions below, where "" is no token. Called once for each client:
// later another thread may change the environment.
std::string WithTokenEnvironment(const std::string& token_file);

// Thread-safe, as the two below. OK if there is no token, or the file has one
// and it may go to `address`
// ("host:port", or a Unix socket as LocalSocketTarget names it): with `tls`
// anywhere, without it loopback and Unix sockets. INVALID_ARGUMENT names the
// file, or the address, and the reason.
absl::Status CheckToken(const std::string& token_file,
                        const std::string& address, bool tls);

// What calls to `address` present; null: nothing, or it may not go there.
CallToken TokenFor(const std::string& token_file, const std::string& address,
                   bool tls);

// The token now; "": there is none. For a process of this host alone.
std::string LocalToken(const std::string& token_file);

// TLS without a line of code: from the environment of a worker or a tool.
// Returns `tls`, with AGG_TLS_CA, AGG_TLS_CERTIFICATE, AGG_TLS_KEY and
// AGG_TLS_SERVER_NAME in place of what is "". A certificate and its key come
// together: neither is taken if the other one is set.
TlsOptions WithTlsEnvironment(TlsOptions tls);

// Makes a channel with a connection of its own to `target`, "host:port" or what
// LocalSocketTarget names, messages of up to kMaxMessageBytes, a reconnect
// backoff of at most 1 s, and a keepalive that notices a dead host within 30 s.
// Connects when first used. With `tls` the server's certificate has to be for
// the host of `address`, which `target` is another way to, or for
// tls.server_name. Its calls present the token of `token_file`
// (above), where it may go there.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& target,
                                           const TlsOptions& tls,
                                           const std::string& token_file,
                                           const std::string& address);
// Makes a channel whose target and address are the same.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const TlsOptions& tls = {},
                                           const std::string& token_file = "");

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CHANNEL_H_
