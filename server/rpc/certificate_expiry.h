// Ends connections with the certificates that they were opened with: TLS asks
// for one at the beginning alone, and a connection may last for months.
#ifndef AGG_SERVER_RPC_CERTIFICATE_EXPIRY_H_
#define AGG_SERVER_RPC_CERTIFICATE_EXPIRY_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "server/rpc/connection_listener.h"

namespace agg {

// Makes the interceptors of a server that asks for certificates. They note when
// a caller's certificate expires (OpenConnections::NoteExpiry), and cancel a
// call whose certificate is over.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
NoteCertificates(std::shared_ptr<OpenConnections> connections);

}  // namespace agg

#endif  // AGG_SERVER_RPC_CERTIFICATE_EXPIRY_H_
