// Calls that hold a version in the shards' memory (P40).
#ifndef AGG_WORKER_CLIENT_VERSION_HOLD_H_
#define AGG_WORKER_CLIENT_VERSION_HOLD_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/agg.grpc.pb.h"
#include "worker_client/parameter_sink.h"
#include "worker_client/pull_stream.h"
#include "worker_client/shard_regions.h"

namespace agg {

// The shards let go when this ends, and at `deadline` at the latest. valid is
// thread-safe.
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
  // To one shard.
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
  // Until the places of all of the shard's slices are known.
  absl::Status Read(const PullSettings& settings, const PullTarget& target,
                    Call* call);
  absl::Status TakeFrame(const ShardRouter& router, const PullTarget& target,
                         const v1::PullFrame& frame, Call* call);

  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<const char*> slices_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_VERSION_HOLD_H_
