// The Reductions service of proto/reduction.proto. Every shard serves it; on
// others than shard 0 it says where the coordinator is.
#ifndef AGG_SERVER_RPC_REDUCTION_SERVICE_H_
#define AGG_SERVER_RPC_REDUCTION_SERVICE_H_

#include "absl/status/status.h"
#include "proto/reduction.grpc.pb.h"
#include "server/access/caller_gate.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/job_conversion.h"
#include "server/rpc/shard_identity.h"

namespace agg {

// Thread-safe. Translates, and decides nothing.
class ReductionService : public v1::Reductions::CallbackService {
 public:
  // As CoordinatorService's.
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
