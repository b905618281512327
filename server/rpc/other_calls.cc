// An interceptor lives as long as its call: so many of them, so many calls.
#include "server/rpc/other_calls.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/interceptor.h>

#include <atomic>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace agg {
namespace {

using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerRpcInfo;
using OnRefused =
    std::function<void(const std::string& from, const std::string& method)>;

// Of one call.
class OtherCall : public grpc::experimental::Interceptor {
 public:
  OtherCall(ServerRpcInfo* call, bool refused, std::atomic<int>* open,
            const OnRefused& on_refused)
      : call_(call), refused_(refused), open_(open), on_refused_(on_refused) {}
  ~OtherCall() override { --*open_; }

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
  bool refused_;
  std::atomic<int>* const open_;
  const OnRefused& on_refused_;
};

class OtherCalls
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  OtherCalls(OnRefused on_refused, int most)
      : on_refused_(std::move(on_refused)), most_(most) {}

  // gRPC owns the result; null: this call is not intercepted.
  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* call) override {
    if (absl::StartsWith(call->method(), "/agg.v1.")) return nullptr;
    return new OtherCall(call, ++open_ > most_, &open_, on_refused_);
  }

 private:
  const OnRefused on_refused_;
  const int most_;
  std::atomic<int> open_{0};
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
LimitOtherCalls(OnRefused on_refused, int most) {
  return std::make_unique<OtherCalls>(std::move(on_refused), most);
}

}  // namespace agg
