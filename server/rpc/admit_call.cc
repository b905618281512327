#include "server/rpc/admit_call.h"

#include <google/protobuf/descriptor.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/interceptor.h>

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "proto/admin.pb.h"
#include "proto/agg.pb.h"
#include "proto/control.pb.h"
#include "proto/reduction.pb.h"
#include "server/access/identities.h"
#include "server/rpc/long_poll.h"
#include "server/tls/tls_reload.h"

namespace agg {

namespace {

using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;

// An interceptor sees the calls of all services alike, gRPC's own among them.
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
      expires = ExpiryOfCertificate({pem.data(), pem.size()});
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

namespace {

using grpc::experimental::InterceptionHookPoints;

// Of one call.
class CallCounter : public grpc::experimental::Interceptor {
 public:
  CallCounter(std::string method, CallCounts* counts)
      : method_(std::move(method)), counts_(counts) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      counts_->Add(method_, batch->GetSendStatus().error_code());
    }
    batch->Proceed();
  }

 private:
  const std::string method_;
  CallCounts* const counts_;
};

class CallCounterFactory
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit CallCounterFactory(CallCounts* counts) : counts_(counts) {}

  // gRPC owns the result, and names methods as "/package.Service/Method".
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    const absl::string_view path = call->method();
    return new CallCounter(std::string(absl::StripPrefix(path, "/")), counts_);
  }

 private:
  CallCounts* const counts_;
};

void DeclareServices(const google::protobuf::FileDescriptor& file,
                     CallCounts* counts) {
  for (int s = 0; s < file.service_count(); ++s) {
    const google::protobuf::ServiceDescriptor& service = *file.service(s);
    for (int m = 0; m < service.method_count(); ++m) {
      counts->Declare(
          absl::StrCat(service.full_name(), "/", service.method(m)->name()));
    }
  }
}

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
CountCalls(bool admin, CallCounts* counts) {
  DeclareServices(*v1::JoinRequest::descriptor()->file(), counts);
  DeclareServices(*v1::PhaseRequest::descriptor()->file(), counts);
  DeclareServices(*v1::ReduceRequest::descriptor()->file(), counts);
  if (admin) {
    DeclareServices(*v1::SetRuleRequest::descriptor()->file(), counts);
  }
  return std::make_unique<CallCounterFactory>(counts);
}

// An interceptor lives as long as its call: so many of them, so many calls.

namespace {

using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;
using OnRefused =
    std::function<void(const std::string& from, const std::string& method)>;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";

// Of one call, which takes a place of `places`, or is cancelled.
class OtherCall : public grpc::experimental::Interceptor {
 public:
  OtherCall(ServerRpcInfo* call, CallPlaces* places,
            const OnRefused& on_refused)
      : call_(call), places_(places), on_refused_(on_refused) {}
  ~OtherCall() override {
    if (taken_) places_->GiveBack(host_);
  }

  void Intercept(InterceptorBatchMethods* batch) override {
    // Not before: a call of a service with blocking methods, as reflection is,
    // has no peer when its interceptors are made. Cancelling comes by here,
    // too.
    if (!std::exchange(asked_, true)) {
      host_ = HostOfPeer(call_->server_context()->peer());
      taken_ = places_->Take(host_);
      if (!taken_) Refuse();
    }
    batch->Proceed();
  }

 private:
  void Refuse() {
    if (on_refused_ != nullptr) {
      on_refused_(call_->server_context()->peer(),
                  std::string(absl::StripPrefix(call_->method(), "/")));
    }
    call_->server_context()->TryCancel();
  }

  ServerRpcInfo* const call_;
  CallPlaces* const places_;
  std::string host_;
  bool asked_ = false;
  bool taken_ = false;
  const OnRefused& on_refused_;
};

class OtherCalls
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  OtherCalls(OnRefused on_refused, int most)
      : on_refused_(std::move(on_refused)), checks_(most), others_(most) {}

  // gRPC owns the result; null: this call is not intercepted.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* call) override {
    if (absl::StartsWith(call->method(), "/agg.v1.")) return nullptr;
    CallPlaces* const places =
        call->method() == absl::string_view(kCheck) ? &checks_ : &others_;
    return new OtherCall(call, places, on_refused_);
  }

 private:
  const OnRefused on_refused_;
  CallPlaces checks_;
  CallPlaces others_;
};

}  // namespace

bool CallPlaces::Take(const std::string& host) {
  MutexLock lock(&mutex_);
  if (taken_ >= most_) return false;
  if (taken_ >= most_ - most_ / 8) {
    const auto found = of_host_.find(host);
    if (found != of_host_.end() && found->second >= kFew) return false;
  }
  ++taken_;
  ++of_host_[host];
  return true;
}

void CallPlaces::GiveBack(const std::string& host) {
  MutexLock lock(&mutex_);
  --taken_;
  const auto found = of_host_.find(host);
  if (--found->second == 0) of_host_.erase(found);
}

std::string HostOfPeer(absl::string_view peer) {
  if (absl::StartsWith(peer, "ipv4:") || absl::StartsWith(peer, "ipv6:")) {
    peer = peer.substr(0, peer.rfind(':'));
  }
  return std::string(peer);
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
LimitOtherCalls(OnRefused on_refused, int most) {
  return std::make_unique<OtherCalls>(std::move(on_refused), most);
}

namespace {

// A header that is not one bearer token is a token that nobody has.
Credentials CredentialsOf(const grpc::CallbackServerContext& context,
                          bool fingerprint) {
  Credentials credentials;
  const auto& metadata = context.client_metadata();
  const auto sent = metadata.equal_range("authorization");
  if (sent.first != sent.second) {
    const grpc::string_ref value = sent.first->second;
    credentials.token =
        std::next(sent.first) == sent.second
            ? BearerToken({value.data(), value.size()}).value_or("")
            : "";
  }
  const auto auth = context.auth_context();
  if (auth == nullptr) return credentials;
  credentials.sans = CertificateNames(*auth);
  if (fingerprint && auth->IsPeerAuthenticated()) {
    for (const grpc::string_ref& pem :
         auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME)) {
      credentials.fingerprint =
          CertificateFingerprint({pem.data(), pem.size()});
    }
  }
  return credentials;
}

}  // namespace

std::vector<std::string> CertificateNames(const grpc::AuthContext& context) {
  std::vector<std::string> names;
  if (!context.IsPeerAuthenticated()) return names;
  for (const char* property :
       {GRPC_PEER_SPIFFE_ID_PROPERTY_NAME, GRPC_PEER_URI_PROPERTY_NAME,
        GRPC_PEER_DNS_PROPERTY_NAME}) {
    for (const grpc::string_ref& value : context.FindPropertyValues(property)) {
      names.emplace_back(value.data(), value.size());
    }
  }
  return names;
}

absl::StatusOr<Caller> AdmitCall(const CallerGate& gate,
                                 const grpc::CallbackServerContext& context,
                                 absl::string_view method) {
  // Other contexts are those of tests, which take nothing.
  const auto* const held = dynamic_cast<const CallContext*>(&context);
  if (held != nullptr && held->expired()) {
    return absl::UnauthenticatedError(
        "the certificate that the connection was opened with has expired; "
        "connect again with one that is good now");
  }
  std::shared_ptr<void> share;
  const bool asks = gate.asks();
  const Credentials credentials =
      asks ? CredentialsOf(context, gate.wants_fingerprints()) : Credentials();
  absl::StatusOr<Caller> caller =
      gate.Admit(credentials, asks || gate.audits() ? context.peer() : "",
                 method, held == nullptr ? nullptr : &share);
  if (held == nullptr) return caller;
  held->Hold(std::move(share));
  if (!asks || !caller.ok()) return caller;
  // gRPC hands contexts out as const.
  auto canceller = std::make_shared<CallCanceller>(
      const_cast<grpc::CallbackServerContext*>(&context));
  held->Hold(gate.KeepOpen(
      credentials, *caller, method,
      [canceller](const absl::Status& status) { canceller->Cancel(status); }));
  return caller;
}

}  // namespace agg
