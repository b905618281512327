// An interceptor sees the calls of all services alike, gRPC's own among them.
#include "server/rpc/certificate_expiry.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/interceptor.h>

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/rpc/admit_call.h"
#include "server/tls/tls_trust.h"

namespace agg {
namespace {

using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

class CertifiedCall : public grpc::experimental::Interceptor {
 public:
  CertifiedCall(ServerRpcInfo* call, OpenConnections* connections)
      : call_(call), connections_(connections) {}

  void Intercept(InterceptorBatchMethods* batch) override {
    // Not before, as for calls that are counted (LimitOtherCalls).
    if (!std::exchange(asked_, true) && !Ask()) {
      if (auto* held = dynamic_cast<CallContext*>(call_->server_context())) {
        held->SetExpired();
      }
      call_->server_context()->TryCancel();
    }
    batch->Proceed();
  }

 private:
  // Whether the caller's certificate is good now.
  bool Ask() {
    const grpc::ServerContextBase* const context = call_->server_context();
    const std::string peer = context->peer();
    if (connections_->KnowsExpiry(peer)) return true;
    const auto auth = context->auth_context();
    if (auth == nullptr || !auth->IsPeerAuthenticated()) return true;
    absl::Time expires = absl::InfiniteFuture();
    for (const grpc::string_ref& pem :
         auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME)) {
      expires = CertificateExpiry({pem.data(), pem.size()});
    }
    return connections_->NoteExpiry(peer, expires);
  }

  ServerRpcInfo* const call_;
  OpenConnections* const connections_;
  bool asked_ = false;
};

class CertifiedCalls
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CertifiedCalls(std::shared_ptr<OpenConnections> connections)
      : connections_(std::move(connections)) {}

  // gRPC owns the result.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* call) override {
    return new CertifiedCall(call, connections_.get());
  }

 private:
  const std::shared_ptr<OpenConnections> connections_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
NoteCertificates(std::shared_ptr<OpenConnections> connections) {
  return std::make_unique<CertifiedCalls>(std::move(connections));
}

}  // namespace agg
