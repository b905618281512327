// Reaches below gRPC's C++ interface, which cannot end a call with a status
// while a write is under way.
#include "server/rpc/call_canceller.h"

#include "proto/status_conversion.h"

namespace agg {

CallCanceller::CallCanceller(grpc::CallbackServerContext* context)
    : call_(context->c_call()) {
  grpc_call_ref(call_);
}

CallCanceller::~CallCanceller() { grpc_call_unref(call_); }

void CallCanceller::Cancel(const absl::Status& status) {
  const grpc::Status converted = ToGrpcStatus(status);
  grpc_call_cancel_with_status(
      call_, static_cast<grpc_status_code>(converted.error_code()),
      converted.error_message().c_str(), nullptr);
}

}  // namespace agg
