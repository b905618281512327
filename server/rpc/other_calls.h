// A bound on the calls of health and reflection, which are gRPC's own services
// and ask nobody who they are.
#ifndef AGG_SERVER_RPC_OTHER_CALLS_H_
#define AGG_SERVER_RPC_OTHER_CALLS_H_

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <memory>
#include <string>

namespace agg {

// Open at a time; further ones are cancelled.
inline constexpr int kMaxOtherCalls = 1024;

// For a server's interceptors: bounds the calls of all services that are not
// "agg.v1.". `on_refused` gets the address and the method of a call that was
// cancelled; may be null.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
LimitOtherCalls(
    std::function<void(const std::string& from, const std::string& method)>
        on_refused,
    int most = kMaxOtherCalls);

}  // namespace agg

#endif  // AGG_SERVER_RPC_OTHER_CALLS_H_
