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

// Of one call. `places` null: it has found none.
class OtherCall : public grpc::experimental::Interceptor {
 public:
  OtherCall(ServerRpcInfo* call, std::string host, CallPlaces* places,
            const OnRefused& on_refused)
      : call_(call),
        host_(std::move(host)),
        places_(places),
        refused_(places == nullptr),
        on_refused_(on_refused) {}
  ~OtherCall() override {
    if (places_ != nullptr) places_->GiveBack(host_);
  }

  void Intercept(InterceptorBatchMethods* batch) override {
    // Cancelling comes by here, too.
    if (std::exchange(refused_, false)) {
      if (on_refused_ != nullptr) {
        on_refused_(call_->server_context()->peer(),
                    std::string(absl::StripPrefix(call_->method(), "/")));
      }
      call_->server_context()->TryCancel();
    }
    batch->Proceed();
  }

 private:
  ServerRpcInfo* const call_;
  const std::string host_;
  CallPlaces* const places_;
  bool refused_;
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
    std::string host = HostOfPeer(call->server_context()->peer());
    CallPlaces* const places =
        call->method() == absl::string_view(kCheck) ? &checks_ : &others_;
    const bool taken = places->Take(host);
    return new OtherCall(call, std::move(host), taken ? places : nullptr,
                         on_refused_);
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
