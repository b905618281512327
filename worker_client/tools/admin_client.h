// The calls of aggctl, each with a deadline and an exit code for its failure.
#ifndef AGG_WORKER_CLIENT_TOOLS_ADMIN_CLIENT_H_
#define AGG_WORKER_CLIENT_TOOLS_ADMIN_CLIENT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "absl/types/optional.h"
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
  // Calls a method of Admin, answered within `wait`, or else within `timeout`.
  template <typename Request, typename Reply>
  AggctlResult Ask(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                                           const Request&,
                                                           Reply*),
                   const Request& request, Reply* reply,
                   absl::optional<absl::Duration> wait = absl::nullopt) {
    return Call(
        [&](grpc::ClientContext* context) {
          return (admin_.get()->*method)(context, request, reply);
        },
        wait.value_or(timeout_));
  }
  // Ends well if `service` ("": the process) is SERVING; kAggctlRefused if not.
  AggctlResult Health(const std::string& service);

  const std::string& address() const { return address_; }

 private:
  AggctlResult Call(
      const std::function<grpc::Status(grpc::ClientContext*)>& call,
      absl::Duration timeout);
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
