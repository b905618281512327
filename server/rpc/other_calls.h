// A bound on the calls of health and reflection, which are gRPC's own services
// and ask nobody who they are.
#ifndef AGG_SERVER_RPC_OTHER_CALLS_H_
#define AGG_SERVER_RPC_OTHER_CALLS_H_

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"

namespace agg {

// Number of calls that may be open at a time; further ones are cancelled.
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

}  // namespace agg

#endif  // AGG_SERVER_RPC_OTHER_CALLS_H_
