// The mark is an entry of the call's trailing metadata, which only the server
// can send, and only with its status.
#include "server/rpc/broken_connection.h"

namespace agg {
namespace {

constexpr char kMark[] = "agg-answered";

}  // namespace

void MarkAnswered(grpc::CallbackServerContext* context) {
  context->AddTrailingMetadata(kMark, "1");
}

bool IsAnswered(const grpc::ClientContext& context) {
  return context.GetServerTrailingMetadata().count(kMark) > 0;
}

}  // namespace agg
