// Reactors of streams that end at once, with a status.
#ifndef AGG_SERVER_RPC_REFUSED_CALL_H_
#define AGG_SERVER_RPC_REFUSED_CALL_H_

#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "proto/status_conversion.h"

namespace agg {

// `Reactor`: one of gRPC's for a stream of the server. Owns itself.
template <typename Reactor>
class RefusedCall : public Reactor {
 public:
  explicit RefusedCall(const absl::Status& reason) {
    this->Finish(ToGrpcStatus(reason));
  }

 private:
  void OnDone() override { delete this; }
  void OnCancel() override {}
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_REFUSED_CALL_H_
