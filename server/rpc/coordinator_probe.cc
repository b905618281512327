// One GetStatus call on a new connection. No answer, another job's or this
// process's own is not another coordinator.
#include "server/rpc/coordinator_probe.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/channel_arguments.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/agg.grpc.pb.h"
#include "proto/grpc_channel.h"

namespace agg {

std::string FindOtherCoordinator(const CoordinatorProbe& probe) {
  // A new connection each time: one that is kept may lead to a process that the
  // name does not lead to any more, and would be slow to try again.
  const auto stub = v1::Coordinator::NewStub(
      NewGrpcChannel(probe.address, probe.address, probe.tls, probe.token,
                     grpc::ChannelArguments()));
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
