// Why an address cannot be listened on, by the errno.
#ifndef AGG_SERVER_RPC_LISTEN_CHECK_H_
#define AGG_SERVER_RPC_LISTEN_CHECK_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace agg {

// UNAVAILABLE with the system's reason and what to do.
absl::Status ListenError(absl::string_view address, int error);

}  // namespace agg

#endif  // AGG_SERVER_RPC_LISTEN_CHECK_H_
