// How a gRPC channel of this project is secured: the same for workers, tools
// and shards that call each other.
#ifndef AGG_PROTO_CHANNEL_CREDENTIALS_H_
#define AGG_PROTO_CHANNEL_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "proto/tls_options.h"

namespace agg {

// Credentials of channels with these options: without TLS if there are none.
// Channels of a process with the same files share what reads them, which one
// thread does. Thread-safe. REQUIRES: `tls` has a ca, and a certificate with a
// key or neither.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(
    const TlsOptions& tls);

// Has the server's certificate be for `tls.server_name`, or the host of
// `address` ("host:port"): also where the channel goes to a Unix socket, whose
// name no certificate has. Nothing without TLS.
void SetServerName(const TlsOptions& tls, const std::string& address,
                   grpc::ChannelArguments* arguments);

// The name that SetServerName asks for.
std::string ServerNameOf(const TlsOptions& tls, const std::string& address);

}  // namespace agg

#endif  // AGG_PROTO_CHANNEL_CREDENTIALS_H_
