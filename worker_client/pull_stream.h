// Pulls one version from all shards at once, or holds it there. Apart from the
// sink, which knows bytes, because this knows calls: order, retries,
// cancellation.
#ifndef AGG_WORKER_CLIENT_PULL_STREAM_H_
#define AGG_WORKER_CLIENT_PULL_STREAM_H_

#include <google/protobuf/message_lite.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/agg.grpc.pb.h"
#include "worker_client/client_types.h"
#include "worker_client/copy_threads.h"
#include "worker_client/parameter_sink.h"
#include "worker_client/pull_arrivals.h"
#include "worker_client/retry.h"
#include "worker_client/shard_regions.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Reads a small message of a stream that carries bytes, so that frames need no
// copy. False if the bytes are not such a message.
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

// Where a pulled version goes, and how. REQUIRES: what is pointed to outlives
// the pull.
struct PullInto {
  BoundTargets targets() const { return {bound, device_of, devices}; }

  std::vector<MutableTensorView> bound;  // ShardRouter::Bind's
  std::vector<int> device_of;            // of each: its device, or kHost
  TensorDevices* devices = nullptr;      // null: all are on the host
  // Nothing is written before these are reached.
  std::vector<SharedMark> marks;
  PullArrivals* arrivals = nullptr;  // never null
  Precision precision = Precision::kJob;
  std::vector<int> first;          // tensors that are wanted first, by index
  CancelSource* cancel = nullptr;  // ends it with its reason; may be null
};

// Holds a version in the shards' memory (P40), by calls. The shards let go when
// this ends, and at `deadline` at the latest. valid is thread-safe.
class VersionHold {
 public:
  // Asks all shards, on the calling thread. FAILED_PRECONDITION: one of them
  // does not share this version; else errors as PullVersion's, which is not
  // tried again.
  static absl::StatusOr<std::unique_ptr<VersionHold>> Take(
      const PullSettings& settings, const PullTarget& target,
      absl::Time deadline);
  // Ends the calls, soon.
  ~VersionHold();
  VersionHold(const VersionHold&) = delete;
  VersionHold& operator=(const VersionHold&) = delete;

  // The address of each of the job's slices.
  const std::vector<const char*>& slices() const { return slices_; }
  // Whether all that has been read until now was of the version.
  bool valid() const;

 private:
  // A call to one shard.
  struct Call {
    int shard = 0;
    std::shared_ptr<const MappedRegions> regions;
    const VersionRegion* region = nullptr;  // in which the version is
    uint64_t generation = 0;
    std::unique_ptr<v1::Shard::Stub> stub;
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::PullFrame>> reader;
    bool finished = false;
  };

  VersionHold() = default;
  // Reads until the places of all of the shard's slices are known.
  absl::Status Read(const PullSettings& settings, const PullTarget& target,
                    Call* call);
  absl::Status TakeFrame(const ShardRouter& router, const PullTarget& target,
                         const v1::PullFrame& frame, Call* call);

  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<const char*> slices_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_PULL_STREAM_H_
