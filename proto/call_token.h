// The token that a process presents with each of its calls (P45): in one place,
// for clients and for shards, so that no call goes without.
#ifndef AGG_PROTO_CALL_TOKEN_H_
#define AGG_PROTO_CALL_TOKEN_H_

#include <grpcpp/support/client_interceptor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace agg {

// Returns what to present now; "": nothing. Called for each call, on its
// thread.
using CallToken = std::function<std::string()>;

// Makes interceptors for NewGrpcChannel (grpc_channel.h): each call of the
// channel carries `authorization: Bearer TOKEN`. None if `token` is null.
std::vector<
    std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>>
TokenInterceptors(const CallToken& token);

}  // namespace agg

#endif  // AGG_PROTO_CALL_TOKEN_H_
