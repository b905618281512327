// What a gRPC call says of who makes it, for the gate (P45).
#ifndef AGG_SERVER_RPC_ADMIT_CALL_H_
#define AGG_SERVER_RPC_ADMIT_CALL_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/access/access_rules.h"
#include "server/access/caller_gate.h"

namespace agg {

// SPIFFE ID, URIs and DNS names of a client's certificate; none if it has not
// proved that the certificate is its own.
std::vector<std::string> CertificateNames(const grpc::AuthContext& context);

// To be called at the beginning of every call of every service: a stream is
// admitted once, and its messages cost nothing more. What it takes of the
// limits goes back when the call ends. CallerGate::Admit's errors.
absl::StatusOr<Caller> AdmitCall(const CallerGate& gate,
                                 const grpc::CallbackServerContext& context,
                                 absl::string_view method);

}  // namespace agg

#endif  // AGG_SERVER_RPC_ADMIT_CALL_H_
