// Pushes a row, or the seed, to all shards at once. Apart from the streams:
// this polls them all, decides about retries, and keeps the caller's memory
// safe.
#ifndef AGG_WORKER_CLIENT_ROW_PUSHER_H_
#define AGG_WORKER_CLIENT_ROW_PUSHER_H_

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "worker_client/cancel_source.h"
#include "worker_client/frame_source.h"
#include "worker_client/retry.h"
#include "worker_client/shard_router.h"
#include "worker_client/shard_stream.h"

namespace agg {

// Holds a ShardStream per shard that has slices, on one completion queue that
// Push polls. Not thread-safe.
class RowPusher {
 public:
  // REQUIRES: router and cancel outlive this.
  RowPusher(const ShardRouter* router, const std::vector<ShardName>& names,
            const std::vector<std::shared_ptr<grpc::Channel>>& channels,
            absl::Duration reconnect_window, CancelSource* cancel);
  ~RowPusher();
  RowPusher(const RowPusher&) = delete;
  RowPusher& operator=(const RowPusher&) = delete;

  // An acknowledgement of the last Push.
  struct Receipt {
    int shard = 0;
    bool landed = false;  // else the round was closed, and the bytes dropped
    // Of CommitRequest.row_crc32c; nothing: not everything was sent.
    absl::optional<uint32_t> crc32c;
  };

  // Sends the bound views (ShardRouter::Bind) as `dtype` to `shards`, and
  // returns when all of them have acknowledged; one whose connection breaks
  // gets them again. `meta` holds epoch, session, round, kind and attempt. Once
  // Push has returned, also with an error, gRPC no longer reads the views'
  // memory. Errors: the cancel source's reason; DEADLINE_EXCEEDED; what a shard
  // answers. REQUIRES: each of `shards` has slices.
  absl::Status Push(absl::Span<const TensorView> bound, DType dtype,
                    const v1::FrameMeta& meta, absl::Span<const int> shards,
                    absl::Time deadline);

  // Of the shards that have acknowledged the last Push, which may have failed
  // at others.
  const std::vector<Receipt>& receipts() const { return receipts_; }

 private:
  // One shard's part of the push in progress.
  struct Part {
    int ordinal;
    ShardStream* stream;
    std::unique_ptr<FrameSource> source;
    RetryPolicy retries;
    absl::Time restart_at = absl::InfiniteFuture();
  };

  // The push's parts, started.
  std::vector<Part> Start(absl::Span<const TensorView> bound, DType dtype,
                          const v1::FrameMeta& meta,
                          absl::Span<const int> shards);
  // Whether all shards have acknowledged; restarts broken parts when their
  // pause is over.
  absl::StatusOr<bool> Advance(const v1::FrameMeta& meta,
                               std::vector<Part>* parts);
  // Waits until `until` for one event and runs it; false: none came.
  bool RunEvent(absl::Time until);
  absl::Status Wait(const v1::FrameMeta& meta, absl::Time deadline,
                    std::vector<Part>* parts);
  void TakeReceipts(const std::vector<Part>& parts);
  // Cancels the parts' unfinished calls and waits until they end.
  void Abandon(std::vector<Part>* parts);
  // Until gRPC has released every frame.
  void WaitForMemory();

  const ShardRouter* const router_;
  const absl::Duration reconnect_window_;
  CancelSource* const cancel_;
  const std::shared_ptr<FrameMemory> memory_;
  grpc::CompletionQueue queue_;
  std::vector<Receipt> receipts_;
  std::vector<std::unique_ptr<ShardStream>>
      streams_;  // by ordinal; may be null
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROW_PUSHER_H_
