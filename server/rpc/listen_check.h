// Why an address cannot be listened on. Apart from rpc_server.h because gRPC
// does not say: it logs lines of its own and returns nothing.
#ifndef AGG_SERVER_RPC_LISTEN_CHECK_H_
#define AGG_SERVER_RPC_LISTEN_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace agg {

// Listens on "host:port" for a moment. UNAVAILABLE with the system's reason and
// what to do; a host of several addresses is good if one of them is. Another
// process may still take the port after this.
absl::Status CheckListen(absl::string_view address);

// What CheckListen says of an errno.
absl::Status ListenError(absl::string_view address, int error);

}  // namespace agg

#endif  // AGG_SERVER_RPC_LISTEN_CHECK_H_
