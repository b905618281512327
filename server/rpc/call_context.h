// What a call takes of the limits (P46) lives as long as gRPC's context of it:
// until nothing of the call is in memory any more.
#ifndef AGG_SERVER_RPC_CALL_CONTEXT_H_
#define AGG_SERVER_RPC_CALL_CONTEXT_H_

#include <grpcpp/server_context.h>

#include <memory>
#include <utility>
#include <vector>

namespace agg {

class CallContext : public grpc::CallbackServerContext {
 public:
  // Held from here on. gRPC hands contexts out as const.
  void Hold(std::shared_ptr<void> share) const {
    if (share != nullptr) shares_.push_back(std::move(share));
  }

 private:
  mutable std::vector<std::shared_ptr<void>> shares_;
};

// Has a gRPC server make its contexts so.
class CallContexts : public grpc::ContextAllocator {
 public:
  grpc::CallbackServerContext* NewCallbackServerContext() override {
    return new CallContext;
  }
  void Release(grpc::CallbackServerContext* context) override {
    // That of a method which no service has is gRPC's own, inside its request.
    delete dynamic_cast<CallContext*>(context);
  }
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_CALL_CONTEXT_H_
