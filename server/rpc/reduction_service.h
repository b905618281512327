// Serves the Reductions of proto/reduction.proto, on every shard; others than
// shard 0 say where the coordinator is.
#ifndef AGG_SERVER_RPC_REDUCTION_SERVICE_H_
#define AGG_SERVER_RPC_REDUCTION_SERVICE_H_

#include "absl/status/status.h"
#include "proto/reduction.grpc.pb.h"
#include "server/access/caller_gate.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/job_conversion.h"

namespace agg {

// Thread-safe. Translates, and decides nothing.
class ReductionService : public v1::Reductions::CallbackService {
 public:
  // Takes what CoordinatorService takes.
  ReductionService(const ShardIdentity& self, const JobInfo& job,
                   Coordinator* coordinator, const CallerGate* gate);

 private:
  grpc::ServerUnaryReactor* Reduce(grpc::CallbackServerContext* context,
                                   const v1::ReduceRequest* request,
                                   v1::ReduceReply* reply) override;

  Coordinator* const coordinator_;
  const absl::Status not_here_;  // why coordinator_ is null
  const CallerGate* const gate_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_REDUCTION_SERVICE_H_
