// One TCP connection with a time limit for all that is done with it.
#ifndef AGG_SERVER_TLS_TCP_CONNECTION_H_
#define AGG_SERVER_TLS_TCP_CONNECTION_H_

#include <string>

#include "absl/time/time.h"
#include "server/base/file_descriptor.h"

namespace agg {

// A connected socket that does not block, to the first address of "host:port"
// that takes it by `deadline`; not valid if none does.
FileDescriptor ConnectTcp(const std::string& address, absl::Time deadline);

// Waits until the socket can be read, or written. False: the deadline came.
bool AwaitSocket(int socket, bool write, absl::Time deadline);

}  // namespace agg

#endif  // AGG_SERVER_TLS_TCP_CONNECTION_H_
