// The calls of aggctl, each with a deadline and an exit code for its failure.
#ifndef AGG_WORKER_CLIENT_TOOLS_ADMIN_CLIENT_H_
#define AGG_WORKER_CLIENT_TOOLS_ADMIN_CLIENT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "proto/admin.grpc.pb.h"
#include "proto/agg.grpc.pb.h"
#include "proto/health.grpc.pb.h"
#include "proto/tls_options.h"
#include "worker_client/tools/aggctl_flags.h"

namespace agg {

// How a command ended; `message` is one line, empty if all went well.
struct AggctlResult {
  AggctlExit code = kAggctlOk;
  std::string message;

  bool ok() const { return code == kAggctlOk; }
};

// Used by one thread.
class AdminClient {
 public:
  // Connects with the first call. `token_file`: a path; "": no token.
  // REQUIRES: CheckTlsOptions(tls) is OK.
  AdminClient(const std::string& address, absl::Duration timeout,
              const TlsOptions& tls = {}, const std::string& token_file = "");

  AggctlResult Status(v1::StatusReply* reply);
  AggctlResult Tensors(v1::ListTensorsReply* reply);
  AggctlResult Rounds(const v1::ListRoundsRequest& request,
                      v1::ListRoundsReply* reply);
  AggctlResult SetRule(const v1::SetRuleRequest& request,
                       v1::SetRuleReply* reply);
  AggctlResult Evict(const v1::EvictWorkerRequest& request,
                     v1::EvictWorkerReply* reply);
  AggctlResult Drain(v1::DrainReply* reply);
  // Takes a checkpoint. Answered when it is complete: `wait` is the deadline.
  AggctlResult TakeCheckpoint(absl::Duration wait,
                              v1::TakeCheckpointReply* reply);
  // Restores `checkpoint`, as RestoreRequest has it. Answered when that is
  // done, and a checkpoint of it is complete: `wait` is the deadline. With ""
  // nothing is restored, and the timeout of the other calls is the deadline.
  AggctlResult Restore(const std::string& checkpoint, absl::Duration wait,
                       v1::RestoreReply* reply);
  AggctlResult Resume(absl::Duration wait, v1::ResumeReply* reply);
  AggctlResult SetLogLevel(const std::string& level,
                           v1::SetLogLevelReply* reply);
  AggctlResult Version(v1::GetVersionReply* reply);
  AggctlResult Audit(const v1::ListAuditRequest& request,
                     v1::ListAuditReply* reply);
  // Ends well if `service` ("": the process) is SERVING; kAggctlRefused if not.
  AggctlResult Health(const std::string& service);

  const std::string& address() const { return address_; }

 private:
  // Calls method `call` of `stub`, answered within `timeout`.
  template <typename Stub, typename Request, typename Reply>
  AggctlResult Call(Stub* stub,
                    grpc::Status (Stub::*call)(grpc::ClientContext*,
                                               const Request&, Reply*),
                    const Request& request, Reply* reply,
                    absl::Duration timeout);
  // Calls the method, answered within timeout_.
  template <typename Stub, typename Request, typename Reply>
  AggctlResult Call(Stub* stub,
                    grpc::Status (Stub::*call)(grpc::ClientContext*,
                                               const Request&, Reply*),
                    const Request& request, Reply* reply) {
    return Call(stub, call, request, reply, timeout_);
  }
  AggctlResult Explain(const grpc::Status& status,
                       absl::Duration timeout) const;

  const std::string address_;
  const absl::Duration timeout_;
  const TlsOptions tls_;
  const std::string token_file_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Coordinator::Stub> coordinator_;
  const std::unique_ptr<v1::Admin::Stub> admin_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_ADMIN_CLIENT_H_
