// The token that a client presents (P45), from a file that is read anew when it
// changes. One reader for each file of the process.
#ifndef AGG_WORKER_CLIENT_CLIENT_TOKEN_H_
#define AGG_WORKER_CLIENT_CLIENT_TOKEN_H_

#include <string>

#include "absl/status/status.h"
#include "proto/call_token.h"

namespace agg {

// `token_file`, or AGG_TOKEN_FILE of the environment in place of "". Called
// once for each client: later another thread may change the environment.
std::string WithTokenEnvironment(const std::string& token_file);

// The others take what that returns, and "" is no token. Thread-safe.

// OK if there is no token, or the file has one and it may go to `address`
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

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CLIENT_TOKEN_H_
