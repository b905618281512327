// Pushes a row, or the seed, to all shards at once. Apart from the streams:
// this polls them all, decides about retries, and keeps the caller's memory
// safe.
#ifndef AGG_WORKER_CLIENT_ROW_PUSHER_H_
#define AGG_WORKER_CLIENT_ROW_PUSHER_H_

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "server/base/mutex.h"
#include "worker_client/client_types.h"
#include "worker_client/frame_source.h"
#include "worker_client/growing_row.h"
#include "worker_client/parameter_sink.h"
#include "worker_client/pull_stream.h"
#include "worker_client/retry.h"
#include "worker_client/row_encoding.h"
#include "worker_client/shard_regions.h"
#include "worker_client/shard_router.h"
#include "worker_client/shard_stream.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// Whose turn it is to push: one at a time, and who waits can be cancelled. It
// is a lock for as long as bytes travel, which may be for minutes. Thread-safe.
class ABSL_LOCKABLE PushTurn {
 public:
  PushTurn() = default;
  PushTurn(const PushTurn&) = delete;
  PushTurn& operator=(const PushTurn&) = delete;

  // Waits for the turn. False: `cancel`, which may be null, was cancelled
  // first, or before.
  bool Take(CancelSource* cancel) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
  void Give() ABSL_UNLOCK_FUNCTION();

 private:
  Mutex mutex_;
  CondVar changed_;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
};

// The turn for a scope.
class ABSL_SCOPED_LOCKABLE PushTurnLock {
 public:
  explicit PushTurnLock(PushTurn* turn) ABSL_EXCLUSIVE_LOCK_FUNCTION(turn);
  ~PushTurnLock() ABSL_UNLOCK_FUNCTION() { turn_->Give(); }
  PushTurnLock(const PushTurnLock&) = delete;
  PushTurnLock& operator=(const PushTurnLock&) = delete;

 private:
  PushTurn* const turn_;
};

// Limits of a shard's part of a row that goes in one trip (P41). Larger ones
// gain nothing by it, unless the job is pipelined: their time is that of their
// bytes.
inline constexpr int64_t kMaxTripBytes = int64_t{1} << 20;
inline constexpr size_t kMaxTripSlices = 1024;

// Returns the shards that rows go to in one trip, ascending: those with slices,
// if each gets one frame, and shard 0 one with the commit. Else none.
std::vector<int> TripShards(const ShardRouter& router, DType dtype);
// Returns those of a pipelined job (P43): all with slices, however large their
// parts are, if shard 0 is one of them. Else none.
std::vector<int> PipelinedTripShards(const ShardRouter& router);

// Returns how long the worker waits for the trip's end, which is that of the
// round. It falls back to ordinary calls then, which for a small row is no
// loss. A pipelined row would be sent again: that trip has as long as the
// calls.
absl::Duration TripTimeout(const ClientOptions& options, bool pipelined);

// One attempt of a trip, at the shards of one epoch.
struct RoundTrip {
  // The first frame to each shard asks for all of this, so that the version
  // comes while the row is on its way (P43); else the last one does (P41).
  bool pipelined = false;
  // Complete but for row_crc32c, which a pipelined one does not have.
  v1::CommitRequest commit;
  v1::PullRequest pull;
  ParameterSink* sink = nullptr;  // takes the version; outlives the trip

  absl::optional<v1::RoundOutcome> outcome;  // nothing: it has not come
  bool pulled = false;                       // all of the version has come
};

// What a worker wants to be tried in one trip. REQUIRES: what is pointed to
// outlives it.
struct TripRequest {
  const PushInfo* info = nullptr;
  const PullInto* into = nullptr;

  absl::optional<RoundOutcome> outcome;  // nothing: ordinary calls are needed
  // The outcome's version is where it belongs, and is version().
  bool pulled = false;
};

// Holds a ShardStream per shard that has slices, on one completion queue that
// Push polls. Not thread-safe.
class RowPusher {
 public:
  // `feedback`: as FrameSource's. REQUIRES: router, cancel and feedback outlive
  // this.
  RowPusher(const ShardRouter* router, const std::vector<ShardName>& names,
            const std::vector<std::shared_ptr<grpc::Channel>>& channels,
            absl::Duration reconnect_window, CancelSource* cancel,
            ErrorFeedback* feedback = nullptr);
  ~RowPusher();
  RowPusher(const RowPusher&) = delete;
  RowPusher& operator=(const RowPusher&) = delete;

  // An acknowledgement of the last Push.
  struct Receipt {
    int shard = 0;
    bool landed = false;  // else the round was closed, and the bytes dropped
    // The shard's number in CommitRequest.row_crc32c; nothing: not everything
    // was sent.
    absl::optional<uint32_t> crc32c;
  };

  // Sends the row to `shards`, each slice as soon as the row has it, and
  // returns when all of them have acknowledged; one whose connection breaks
  // gets it again. `meta` holds epoch, session, round, kind and attempt. Frames
  // are narrowed and get their checksums here, on the thread that calls. Once
  // Push has returned, also with an error, gRPC no longer reads the tensors'
  // memory. Errors: the cancel source's reason, or the row's; DEADLINE_EXCEEDED
  // when `timeout` has passed since the row was complete, whatever was waited
  // for, a device included; what a shard answers; FrameSource::Make's and
  // GrowingRow::Take's.
  // `regions`, as `shards`: where a shard's slices are written (P39), as they
  // come; null: they are sent. REQUIRES: each of `shards` has slices.
  absl::Status Push(GrowingRow* row, const v1::FrameMeta& meta,
                    absl::Span<const int> shards,
                    absl::Span<RowRegion* const> regions,
                    absl::Duration timeout);

  // Pushes the complete row, with what `trip` asks for and what comes back, in
  // one trip: to all shards with slices, which `shards` names. OK: the outcome
  // is there, if not the version, or the shards have acknowledged the row and
  // passed over the rest. Else the row is to be pushed as if this had not been.
  // Nothing is tried again here. Memory, regions and errors as for Push;
  // `timeout` since now. REQUIRES: the row's marks are reached.
  absl::Status PushInOneTrip(GrowingRow* row, const v1::FrameMeta& meta,
                             absl::Span<const int> shards,
                             absl::Span<RowRegion* const> regions,
                             absl::Duration timeout, RoundTrip* trip);
  // False once a shard has shown that it knows no trips.
  bool takes_trips() const { return takes_trips_; }

  // Receipts of the shards that have acknowledged the last Push, which may have
  // failed at others.
  const std::vector<Receipt>& receipts() const { return receipts_; }

 private:
  // One shard's part of the push in progress.
  struct Part {
    int ordinal;
    ShardStream* stream;
    std::unique_ptr<FrameSource> source;
    RetryPolicy retries;
    absl::Time restart_at = absl::InfiniteFuture();
    ShardStream::Trip trip = {};  // of PushInOneTrip
  };

  // The push in progress.
  struct Job {
    GrowingRow* row;
    const v1::FrameMeta& meta;
    RowSchedule schedule;
    GrowingRow::Cursor cursor;
    bool waits_for_device = false;  // GrowingRow::Taken::waits
    MarkPauses pauses;              // of that
    std::vector<Part> parts;
  };

  // Handles what has happened to the streams since the last push.
  void RunPastEvents();
  Part MakePart(int shard, const v1::FrameMeta& meta, const GrowingRow& row,
                RowRegion* region, absl::Duration reconnect_window);
  void Start(absl::Span<const int> shards, absl::Span<RowRegion* const> regions,
             Job* job);
  // Starts the trip. Nothing is sent after an error.
  absl::Status StartTrip(absl::Span<const int> shards,
                         absl::Span<RowRegion* const> regions, Job* job,
                         RoundTrip* trip);
  // Takes what has come back, and the receipts that follow from it.
  void EndTrip(const Job& job, RoundTrip* trip);
  // Takes the tensors of the row that have come since the last call.
  absl::StatusOr<std::vector<int>> Take(Job* job);
  // Gives what has come of the row to the streams that have nothing to send.
  absl::Status Feed(Job* job);
  // Whether all shards have acknowledged; restarts broken parts when their
  // pause is over.
  absl::StatusOr<bool> Advance(Job* job);
  // Waits until `until` for one event and runs it; false: none came.
  bool RunEvent(absl::Time until);
  // Waits for one event and runs it, but no longer than is good for a device
  // that is waited for.
  bool RunEventOrPause(absl::Time until, Job* job);
  // Returns why nobody waits any longer; OK: they do.
  absl::Status Cancelled(const Job& job) const;
  static absl::Status TimedOut(const Job& job);
  absl::Status Wait(absl::Duration timeout, Job* job);
  void TakeReceipts(const std::vector<Part>& parts);
  // Cancels the parts' unfinished calls and waits until they end.
  void Abandon(std::vector<Part>* parts);
  // Waits until gRPC has released every frame.
  void WaitForMemory();

  const ShardRouter* const router_;
  const absl::Duration reconnect_window_;
  CancelSource* const cancel_;
  ErrorFeedback* const feedback_;
  const std::shared_ptr<FrameMemory> memory_;
  grpc::CompletionQueue queue_;
  QueueWaker waker_;
  bool takes_trips_ = true;
  std::vector<Receipt> receipts_;
  std::vector<std::unique_ptr<ShardStream>>
      streams_;  // by ordinal; may be null
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROW_PUSHER_H_
