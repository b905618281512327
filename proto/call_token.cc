#include "proto/call_token.h"

#include <map>
#include <utility>

namespace agg {
namespace {

namespace ge = grpc::experimental;

class TokenInterceptor : public ge::Interceptor {
 public:
  explicit TokenInterceptor(const CallToken& token) : token_(token) {}

  void Intercept(ge::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(
            ge::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      const std::string token = token_();
      if (!token.empty()) {
        batch->GetSendInitialMetadata()->insert(
            {"authorization", "Bearer " + token});
      }
    }
    batch->Proceed();
  }

 private:
  const CallToken token_;
};

class TokenInterceptorFactory : public ge::ClientInterceptorFactoryInterface {
 public:
  explicit TokenInterceptorFactory(CallToken token)
      : token_(std::move(token)) {}

  // gRPC owns the result.
  ge::Interceptor* CreateClientInterceptor(ge::ClientRpcInfo*) override {
    return new TokenInterceptor(token_);
  }

 private:
  const CallToken token_;
};

}  // namespace

std::vector<std::unique_ptr<ge::ClientInterceptorFactoryInterface>>
TokenInterceptors(const CallToken& token) {
  std::vector<std::unique_ptr<ge::ClientInterceptorFactoryInterface>> factories;
  if (token != nullptr) {
    factories.push_back(std::make_unique<TokenInterceptorFactory>(token));
  }
  return factories;
}

}  // namespace agg
