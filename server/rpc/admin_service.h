// The Admin service of proto/admin.proto: what operators ask of a running job.
#ifndef AGG_SERVER_RPC_ADMIN_SERVICE_H_
#define AGG_SERVER_RPC_ADMIN_SERVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/admin.grpc.pb.h"
#include "server/access/access_rules.h"
#include "server/access/caller_gate.h"
#include "server/base/field_error.h"
#include "server/base/mutex.h"
#include "server/coordinator/coordinator.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/coordinator_service.h"
#include "server/rpc/job_conversion.h"

namespace agg {

struct AdminOptions {
  ShardIdentity self;
  JobInfo job;
  std::string version;  // of the build
  // What Describe answers, as in RpcServerOptions.
  std::vector<FieldValue> config;
  std::function<std::string()> metrics;
  // Ends the process as SIGTERM does, without blocking; called once at most.
  // Null: Drain is refused.
  std::function<void()> on_drain_request;
  // Outlives the service, as the coordinator does.
  const CallerGate* gate = nullptr;
};

// ListTensors carries bytes: its reply is several times as large before it is
// serialized.
using AdminMethods =
    v1::Admin::WithRawCallbackMethod_ListTensors<v1::Admin::CallbackService>;

// Thread-safe. Translates, logs who asked for what, and decides nothing.
class AdminService : public AdminMethods, private CoordinatorCalls {
 public:
  // `coordinator` is null on other shards than 0: calls that need it get
  // NotTheCoordinator. It outlives the service, which outlives its server.
  AdminService(const AdminOptions& options, Coordinator* coordinator);

 private:
  template <class Reply>
  class Change;

  grpc::ServerUnaryReactor* SetRule(grpc::CallbackServerContext* context,
                                    const v1::SetRuleRequest* request,
                                    v1::SetRuleReply* reply) override;
  grpc::ServerUnaryReactor* EvictWorker(grpc::CallbackServerContext* context,
                                        const v1::EvictWorkerRequest* request,
                                        v1::EvictWorkerReply* reply) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainReply* reply) override;
  grpc::ServerUnaryReactor* TakeCheckpoint(
      grpc::CallbackServerContext* context,
      const v1::TakeCheckpointRequest* request,
      v1::TakeCheckpointReply* reply) override;
  grpc::ServerUnaryReactor* Restore(grpc::CallbackServerContext* context,
                                    const v1::RestoreRequest* request,
                                    v1::RestoreReply* reply) override;
  grpc::ServerUnaryReactor* Resume(grpc::CallbackServerContext* context,
                                   const v1::ResumeRequest* request,
                                   v1::ResumeReply* reply) override;
  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context,
                                        const v1::SetLogLevelRequest* request,
                                        v1::SetLogLevelReply* reply) override;
  grpc::ServerUnaryReactor* ListTensors(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* reply) override;
  grpc::ServerUnaryReactor* ListRounds(grpc::CallbackServerContext* context,
                                       const v1::ListRoundsRequest* request,
                                       v1::ListRoundsReply* reply) override;
  grpc::ServerUnaryReactor* GetVersion(grpc::CallbackServerContext* context,
                                       const v1::GetVersionRequest* request,
                                       v1::GetVersionReply* reply) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::DescribeReply* reply) override;
  grpc::ServerUnaryReactor* ListAudit(grpc::CallbackServerContext* context,
                                      const v1::ListAuditRequest* request,
                                      v1::ListAuditReply* reply) override;

  const AdminOptions options_;
  std::atomic<bool> drain_requested_{false};
  Mutex describing_;  // one list of tensors is made at a time
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_ADMIN_SERVICE_H_
