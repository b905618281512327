#include "server/rpc/redirect_service.h"

#include "absl/strings/str_cat.h"
#include "server/rpc/status_conversion.h"

namespace agg {
namespace {

class RefusedAttend
    : public grpc::ServerBidiReactor<v1::LeaseRenewal, v1::JobEvent> {
 public:
  explicit RefusedAttend(const absl::Status& refusal) {
    Finish(ToGrpcStatus(refusal));
  }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

RedirectService::RedirectService(absl::string_view shard,
                                 absl::string_view coordinator)
    : refusal_(absl::FailedPreconditionError(
          absl::StrCat(shard, " is not the coordinator; the coordinator is ",
                       "shard 0 (", coordinator, ")"))) {}

grpc::ServerUnaryReactor* RedirectService::Refuse(
    grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(refusal_));
  return reactor;
}

grpc::ServerUnaryReactor* RedirectService::Join(
    grpc::CallbackServerContext* context, const v1::JoinRequest*,
    v1::JoinReply*) {
  return Refuse(context);
}
grpc::ServerUnaryReactor* RedirectService::Observe(
    grpc::CallbackServerContext* context, const v1::ObserveRequest*,
    v1::JoinReply*) {
  return Refuse(context);
}
grpc::ServerBidiReactor<v1::LeaseRenewal, v1::JobEvent>*
RedirectService::Attend(grpc::CallbackServerContext*) {
  return new RefusedAttend(refusal_);
}
grpc::ServerUnaryReactor* RedirectService::Commit(
    grpc::CallbackServerContext* context, const v1::CommitRequest*,
    v1::RoundOutcome*) {
  return Refuse(context);
}
grpc::ServerUnaryReactor* RedirectService::WaitRound(
    grpc::CallbackServerContext* context, const v1::WaitRequest*,
    v1::RoundOutcome*) {
  return Refuse(context);
}
grpc::ServerUnaryReactor* RedirectService::Leave(
    grpc::CallbackServerContext* context, const v1::LeaveRequest*,
    v1::LeaveReply*) {
  return Refuse(context);
}
grpc::ServerUnaryReactor* RedirectService::GetStatus(
    grpc::CallbackServerContext* context, const v1::StatusRequest*,
    v1::StatusReply*) {
  return Refuse(context);
}

}  // namespace agg
