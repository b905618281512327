// An interceptor lives as long as its call: so many of them, so many calls.
#include "server/rpc/other_calls.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/interceptor.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace agg {
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

}  // namespace agg
