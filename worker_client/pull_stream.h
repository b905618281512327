// Pulls one version from all shards at once. Apart from the sink, which knows
// bytes, because this knows calls: order, retries, cancellation.
#ifndef AGG_WORKER_CLIENT_PULL_STREAM_H_
#define AGG_WORKER_CLIENT_PULL_STREAM_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/channel.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker_client/copy_threads.h"
#include "worker_client/parameter_sink.h"
#include "worker_client/pull_arrivals.h"
#include "worker_client/retry.h"
#include "worker_client/shard_regions.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// Small protobuf messages on streams of grpc::ByteBuffer. The streams carry
// bytes, so that frames need no copy; their other messages are made here.

// False if the bytes are not such a message.
bool ParseMessage(const grpc::ByteBuffer& buffer,
                  google::protobuf::MessageLite* message);

grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message);

// Where and how to pull. REQUIRES: what is pointed to outlives the calls.
struct PullSettings {
  const ShardRouter* router = nullptr;
  std::vector<ShardName> names;                          // by ordinal
  std::vector<std::shared_ptr<grpc::Channel>> channels;  // by ordinal
  // What of the shards' memory is mapped, by ordinal. Empty: nothing is.
  std::vector<std::shared_ptr<const MappedRegions>> regions;
  absl::Duration reconnect_window;
  // Any of them ends the pull with its reason.
  std::vector<CancelSource*> cancels;
  // Tensors that are asked for first, by index, in this order; a hint.
  std::vector<int> first;
  PullArrivals* arrivals = nullptr;  // hears of what lands
  CopyThreads* copies = nullptr;     // out of the shards' memory
};

// Copies `target.version` of all shards into the bound tensors (Bind's), on the
// calling thread. A shard whose connection breaks, or whose bytes arrive
// damaged, is pulled again; versions never change, so parts of two versions
// never mix. Errors: a cancel source's reason; DEADLINE_EXCEEDED; what a shard
// answers, such as OUT_OF_RANGE. Thread-safe.
absl::Status PullVersion(const PullSettings& settings, const PullTarget& target,
                         const BoundTargets& bound, absl::Time deadline);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_PULL_STREAM_H_
