// How the gRPC ports of a shard are secured.
#ifndef AGG_SERVER_RPC_SERVER_CREDENTIALS_H_
#define AGG_SERVER_RPC_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/tls/tls_reload.h"

namespace agg {

// Makes the credentials of one port: another one gets its own. With TLS each
// new connection gets what `tls` says then; connections that are open stay.
// Where `tls` has a CA, a peer without a certificate of it is refused in the
// handshake. The peer's names are in the call's AuthContext
// (grpcpp/security/auth_context.h). `tls` and the credentials outlive the
// server, and Open was OK; null: no TLS, and no names.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(TlsReload* tls);

}  // namespace agg

#endif  // AGG_SERVER_RPC_SERVER_CREDENTIALS_H_
