// What a gRPC call says of who makes it, for the gate (P45), and what bounds
// calls and connections by it.
#ifndef AGG_SERVER_RPC_ADMIT_CALL_H_
#define AGG_SERVER_RPC_ADMIT_CALL_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/access/access_rules.h"
#include "server/access/caller_gate.h"
#include "server/base/call_counts.h"
#include "server/base/mutex.h"
#include "server/rpc/connection_listener.h"

namespace agg {

// Ends connections with the certificates that they were opened with: TLS asks
// for one at the beginning alone, and a connection may last for months.
//
// Makes the interceptors of a server that asks for certificates. They note when
// a caller's certificate expires (OpenConnections::NoteExpiry), and cancel a
// call whose certificate is over, which AdmitCall refuses, too.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
NoteCertificates(std::shared_ptr<OpenConnections> connections);

// Counts the calls of a gRPC server, of all services alike: each ends with one
// status, which gRPC shows to an interceptor before it is sent. Makes an
// interceptor for a server that declares the methods of proto/agg.proto and,
// with `admin`, of proto/admin.proto, and counts every call that the server
// answers. `counts` outlives the server. A call of a method that no service has
// is answered by gRPC itself and is not seen.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
CountCalls(bool admin, CallCounts* counts);

// Number of calls of health and reflection that may be open at a time; further
// ones are cancelled. These services are gRPC's own, and ask nobody who they
// are.
inline constexpr int kMaxOtherCalls = 1024;

// Places for calls of one kind. The last eighth is for hosts with few of them,
// so that no host alone keeps others out. Thread-safe.
class CallPlaces {
 public:
  static constexpr int kFew = 16;  // of a host

  explicit CallPlaces(int most) : most_(most) {}
  // Takes a place for a call of that host, to be given back; whether there was
  // one.
  bool Take(const std::string& host);
  void GiveBack(const std::string& host);

 private:
  const int most_;
  Mutex mutex_;
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> of_host_ ABSL_GUARDED_BY(mutex_);
};

// What gRPC calls a peer, without the port: "ipv4:10.0.0.1" of
// "ipv4:10.0.0.1:40".
std::string HostOfPeer(absl::string_view peer);

// Makes an interceptor for a server that bounds the calls of all services that
// are not "agg.v1.". Those of Health/Check, which probes make, have `most`
// places of their own: streams that stay open, as Health/Watch, do not take
// them. `on_refused` gets the address and the method of a call that was
// cancelled; may be null.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
LimitOtherCalls(
    std::function<void(const std::string& from, const std::string& method)>
        on_refused,
    int most = kMaxOtherCalls);

// What a call takes of the limits (P46) lives as long as gRPC's context of it:
// until nothing of the call is in memory any more.
class CallContext : public grpc::CallbackServerContext {
 public:
  // Held from here on. gRPC hands contexts out as const.
  void Hold(std::shared_ptr<void> share) const {
    if (share != nullptr) shares_.push_back(std::move(share));
  }

  // Says, before the call is admitted, that the certificate of its connection
  // is over: AdmitCall refuses it. A call that is cancelled so early may reach
  // its service all the same.
  void SetExpired() { expired_ = true; }
  bool expired() const { return expired_; }

 private:
  bool expired_ = false;
  mutable std::vector<std::shared_ptr<void>> shares_;
};

// Has a gRPC server make its contexts so.
class CallContexts : public grpc::ContextAllocator {
 public:
  grpc::CallbackServerContext* NewCallbackServerContext() override {
    return new CallContext;
  }
  void Release(grpc::CallbackServerContext* context) override {
    // That of a method which no service has is gRPC's own, inside its request.
    delete dynamic_cast<CallContext*>(context);
  }
};

// Who a shard is: what the services of one process say about it. The
// coordinator must believe the same of each shard that it attaches.
struct ShardIdentity {
  int32_t ordinal = 0;
  int32_t num_shards = 1;
  std::string address;      // "host:port", for messages
  std::string fingerprint;  // of the config
  std::string backend;
  uint64_t life = 0;          // random bits of the process
  std::string local_socket;   // that it listens on besides its port (P38)
  std::string region_socket;  // where it hands out shared memory (P39)
};

// SPIFFE ID, URIs and DNS names of a client's certificate; none if it has not
// proved that the certificate is its own.
std::vector<std::string> CertificateNames(const grpc::AuthContext& context);

// Must be called at the beginning of every call of every service: a stream is
// admitted once, and its messages cost nothing more. What it takes of the
// limits goes back when the call ends. CallerGate::Admit's errors, and
// UNAUTHENTICATED when the certificate of the connection is over.
absl::StatusOr<Caller> AdmitCall(const CallerGate& gate,
                                 const grpc::CallbackServerContext& context,
                                 absl::string_view method);

}  // namespace agg

#endif  // AGG_SERVER_RPC_ADMIT_CALL_H_
