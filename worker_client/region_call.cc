// One request, one reply, one connection.
#include "worker_client/region_call.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/descriptor_message.h"
#include "server/base/local_socket.h"

namespace agg {
namespace {

constexpr size_t kMaxReplyBytes = size_t{8} << 20;
// Longer than a shard waits for those before this one.
constexpr absl::Duration kPatience = absl::Seconds(5);

}  // namespace

absl::StatusOr<RegionAnswer> AskForRegions(const std::string& name,
                                           const v1::RegionRequest& request) {
  const absl::StatusOr<FileDescriptor> socket = ConnectLocally(name);
  if (!socket.ok()) return socket.status();
  const absl::Status sent =
      SendMessage(socket->get(), request.SerializeAsString(), {}, kPatience);
  if (!sent.ok()) return sent;
  absl::StatusOr<DescriptorMessage> message =
      ReceiveMessage(socket->get(), kMaxReplyBytes, kPatience);
  if (!message.ok()) return message.status();
  RegionAnswer answer;
  answer.descriptors = std::move(message->descriptors);
  if (!answer.reply.ParseFromString(message->bytes)) {
    return absl::InternalError("the shard's RegionReply does not parse");
  }
  if (answer.reply.code() != 0) {
    return absl::Status(static_cast<absl::StatusCode>(answer.reply.code()),
                        answer.reply.message());
  }
  const size_t num_regions = (answer.reply.has_row() ? 1 : 0) +
                             static_cast<size_t>(answer.reply.versions_size()) +
                             (answer.reply.has_row_device() ? 1 : 0) +
                             (answer.reply.has_parameters_device() ? 2 : 0);
  if (num_regions != answer.descriptors.size()) {
    return absl::InternalError(
        "the shard's RegionReply has another number of descriptors");
  }
  return answer;
}

}  // namespace agg
