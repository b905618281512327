#include "server/rpc/admit_call.h"

#include <grpc/grpc_security_constants.h>

#include <iterator>
#include <memory>
#include <utility>

#include "server/access/identities.h"
#include "server/rpc/call_context.h"

namespace agg {
namespace {

// A header that is not one bearer token is a token that nobody has.
Credentials CredentialsOf(const grpc::CallbackServerContext& context) {
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
  if (auth != nullptr) credentials.sans = CertificateNames(*auth);
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
  absl::StatusOr<Caller> caller =
      gate.Admit(asks ? CredentialsOf(context) : Credentials(),
                 asks || gate.audits() ? context.peer() : "", method,
                 held == nullptr ? nullptr : &share);
  if (held != nullptr) held->Hold(std::move(share));
  return caller;
}

}  // namespace agg
