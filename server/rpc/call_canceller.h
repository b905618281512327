// Ends a call from outside its reactor, with a status that reaches the client.
#ifndef AGG_SERVER_RPC_CALL_CANCELLER_H_
#define AGG_SERVER_RPC_CALL_CANCELLER_H_

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>

#include "absl/status/status.h"

namespace agg {

// A reference on a call, valid even after the call has ended. Apart from the
// reactors because it uses gRPC's C core: in C++ TryCancel is all there is, and
// the client would see CANCELLED without a reason. Thread-safe.
class CallCanceller {
 public:
  explicit CallCanceller(grpc::CallbackServerContext* context);
  ~CallCanceller();
  CallCanceller(const CallCanceller&) = delete;
  CallCanceller& operator=(const CallCanceller&) = delete;

  // Ends the call with `status`, and drops the messages that are queued on it
  // with their memory. Does nothing if the call has ended.
  void Cancel(const absl::Status& status);

 private:
  grpc_call* const call_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_CALL_CANCELLER_H_
