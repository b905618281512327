#include "server/rpc/admit_call.h"

#include <grpc/grpc_security_constants.h>

#include <iterator>
#include <memory>
#include <utility>

#include "server/access/identities.h"
#include "server/rpc/call_canceller.h"
#include "server/rpc/call_context.h"
#include "server/tls/tls_trust.h"

namespace agg {
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
