// The Coordinator service of proto/agg.proto, on shard 0.
#ifndef AGG_SERVER_RPC_COORDINATOR_SERVICE_H_
#define AGG_SERVER_RPC_COORDINATOR_SERVICE_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "proto/agg.grpc.pb.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/attend_stream.h"
#include "server/rpc/job_conversion.h"
#include "server/rpc/open_streams.h"

namespace agg {

// The version of proto/agg.proto that this server speaks.
inline constexpr uint32_t kProtocolVersion = 1;

// Thread-safe. Translates; decides nothing but the protocol version, and
// whether the manifest fits into the messages between shards.
class CoordinatorService : public v1::Coordinator::CallbackService {
 public:
  // `coordinator` and `open` outlive the service, which outlives its server.
  CoordinatorService(const JobInfo& job, Coordinator* coordinator,
                     OpenStreams* open);

  // Where the shards listen, once that is known (a port of 0 is any).
  void SetShards(const std::vector<std::string>& shards);

 private:
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext*,
                                 const v1::JoinRequest* request,
                                 v1::JoinReply* reply) override;
  grpc::ServerUnaryReactor* Observe(grpc::CallbackServerContext*,
                                    const v1::ObserveRequest* request,
                                    v1::JoinReply* reply) override;
  grpc::ServerBidiReactor<v1::LeaseRenewal, v1::JobEvent>* Attend(
      grpc::CallbackServerContext*) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const v1::CommitRequest* request,
                                   v1::RoundOutcome* reply) override;
  grpc::ServerUnaryReactor* WaitRound(grpc::CallbackServerContext*,
                                      const v1::WaitRequest* request,
                                      v1::RoundOutcome* reply) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext*,
                                  const v1::LeaveRequest* request,
                                  v1::LeaveReply* reply) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext*,
                                      const v1::StatusRequest*,
                                      v1::StatusReply* reply) override;

  std::shared_ptr<const JobInfo> job();

  Coordinator* const coordinator_;
  OpenStreams* const open_;
  Mutex mutex_;
  std::shared_ptr<const JobInfo> job_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_COORDINATOR_SERVICE_H_
