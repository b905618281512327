// The Coordinator service on shards that are not the coordinator.
#ifndef AGG_SERVER_RPC_REDIRECT_SERVICE_H_
#define AGG_SERVER_RPC_REDIRECT_SERVICE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/agg.grpc.pb.h"

namespace agg {

// Answers every RPC with FAILED_PRECONDITION and the coordinator's address.
class RedirectService : public v1::Coordinator::CallbackService {
 public:
  // `shard`: this one, "shard 1 (host:port)".
  RedirectService(absl::string_view shard, absl::string_view coordinator);

 private:
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest*,
                                 v1::JoinReply*) override;
  grpc::ServerUnaryReactor* Observe(grpc::CallbackServerContext* context,
                                    const v1::ObserveRequest*,
                                    v1::JoinReply*) override;
  grpc::ServerBidiReactor<v1::LeaseRenewal, v1::JobEvent>* Attend(
      grpc::CallbackServerContext*) override;
  grpc::ServerUnaryReactor* Commit(grpc::CallbackServerContext* context,
                                   const v1::CommitRequest*,
                                   v1::RoundOutcome*) override;
  grpc::ServerUnaryReactor* WaitRound(grpc::CallbackServerContext* context,
                                      const v1::WaitRequest*,
                                      v1::RoundOutcome*) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest*,
                                  v1::LeaveReply*) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::StatusRequest*,
                                      v1::StatusReply*) override;

  grpc::ServerUnaryReactor* Refuse(grpc::CallbackServerContext* context);

  const absl::Status refusal_;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_REDIRECT_SERVICE_H_
