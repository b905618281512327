// Both calls carry raw bytes; their reactors do the work (push_stream.h,
// pull_stream.h).
#include "server/rpc/shard_service.h"

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/access/access_rules.h"
#include "server/base/local_socket.h"
#include "server/rpc/admit_call.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/pull_stream.h"

namespace agg {
namespace {

using RefusedPush =
    RefusedCall<grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>>;
using RefusedPull = RefusedCall<grpc::ServerWriteReactor<grpc::ByteBuffer>>;

// The connection is there by now.
void WidenBuffersOf(const grpc::CallbackServerContext& context) {
  if (absl::StartsWith(context.peer(), "unix")) WidenLocalBuffers();
}

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ShardService::Push(
    grpc::CallbackServerContext* context) {
  const absl::StatusOr<Caller> caller =
      AdmitCall(*targets_.gate, *context, kPushMethod);
  if (!caller.ok()) return new RefusedPush(caller.status());
  WidenBuffersOf(*context);
  return PushStream::Start(context, *caller, &targets_);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ShardService::Pull(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  const absl::StatusOr<Caller> caller =
      AdmitCall(*targets_.gate, *context, "agg.v1.Shard/Pull");
  if (!caller.ok()) return new RefusedPull(caller.status());
  WidenBuffersOf(*context);
  return PullStream::Start(
      context, *request, targets_.engine, &cache_, targets_.overtaken,
      caller->identity.empty() ? "a pull"
                               : absl::StrCat("a pull of ", caller->identity));
}

}  // namespace agg
