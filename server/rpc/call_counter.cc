#include "server/rpc/call_counter.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/support/interceptor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/admin.pb.h"
#include "proto/agg.pb.h"
#include "proto/control.pb.h"

namespace agg {
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
  if (admin) {
    DeclareServices(*v1::SetRuleRequest::descriptor()->file(), counts);
  }
  return std::make_unique<CallCounterFactory>(counts);
}

}  // namespace agg
