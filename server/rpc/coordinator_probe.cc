// One GetStatus call on a new connection. No answer, another job's or this
// process's own is not another coordinator.
#include "server/rpc/coordinator_probe.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/agg.grpc.pb.h"
#include "proto/byte_buffer_frame.h"
#include "proto/call_token.h"
#include "proto/channel_credentials.h"
#include "proto/grpc_lifetime.h"

namespace agg {

std::string FindOtherCoordinator(const CoordinatorProbe& probe) {
  KeepGrpcInitialized();
  grpc::ChannelArguments args;
  // A new connection each time: one that is kept may lead to a process that the
  // name does not lead to any more, and would be slow to try again.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  SetServerName(probe.tls, probe.address, &args);
  const auto stub = v1::Coordinator::NewStub(
      grpc::experimental::CreateCustomChannelWithInterceptors(
          probe.address, MakeChannelCredentials(probe.tls), args,
          TokenInterceptors(probe.token)));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + probe.timeout));
  v1::StatusReply reply;
  const grpc::Status status =
      stub->GetStatus(&context, v1::StatusRequest(), &reply);
  if (!status.ok() || reply.job() != probe.job ||
      reply.coordinator_life() == probe.life) {
    return "";
  }
  return absl::StrCat("another coordinator of job \"", reply.job(), "\" (life ",
                      absl::Hex(reply.coordinator_life(), absl::kZeroPad16),
                      ") answers at ", probe.address,
                      ", the address of shard 0");
}

}  // namespace agg
