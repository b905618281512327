// The part of a ShardEngine that is about second copies, apart from its header
// for the reader's sake: functions on an engine, and nothing of their own.
#ifndef AGG_SERVER_SHARD_SHARD_REPLICATION_H_
#define AGG_SERVER_SHARD_SHARD_REPLICATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/buffer.h"
#include "server/base/mutex.h"
#include "server/ingest/shard_layout.h"
#include "server/params/snapshot.h"
#include "server/round/neighbour_peer.h"
#include "server/round/phase.h"
#include "server/shard/shard_compute.h"
#include "server/shard/shard_engine.h"
#include "server/shard/shard_epoch.h"

namespace agg {

// Sends a part's combined gradient to its second copy while the rest of it is
// still being computed (P17).

// A thread of its own sends, in the order of Send; or Send does. Another thread
// uses the class.
class CombinedSender {
 public:
  // All outlive it. `combined`: in the layout, on the host. `check` is asked
  // before each slice: its error ends the sending. `background`: has a thread.
  CombinedSender(NeighbourPeer* peer, const CopyHeader& header,
                 const ShardLayout* layout, const Buffer* combined,
                 std::function<absl::Status()> check, bool background);
  // What has not been sent is not sent any more.
  ~CombinedSender();
  CombinedSender(const CombinedSender&) = delete;
  CombinedSender& operator=(const CombinedSender&) = delete;

  // Slices [begin, end) of the layout are there, and stay until Finish.
  void Send(size_t begin, size_t end);
  // Once, at the end: waits until the neighbour has all. The first error of
  // the peer; nothing is sent after it.
  absl::Status Finish();

 private:
  // Sends until nothing is left, or waits for more until End.
  void Run(bool wait);
  void End(bool drop);

  NeighbourPeer* const peer_;
  const CopyHeader header_;
  const ShardLayout* const layout_;
  const Buffer* const combined_;
  const std::function<absl::Status()> check_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<size_t> slices_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses the others
};

// A shard's copies as its neighbours see them. Apart from the engine, so that
// it needs no second base class.

// Thread-safe.
class ShardCopies : public NeighbourPeer {
 public:
  // `engine` outlives it.
  explicit ShardCopies(ShardEngine* engine) : engine_(engine) {}

  absl::Status SendCombined(const CopyHeader& header,
                            const CopySlice& slice) override {
    return engine_->SendCombined(header, slice);
  }
  absl::Status FinishCombined(const CopyHeader& header) override {
    return engine_->FinishCombined(header);
  }
  absl::Status Fetch(const CopyHeader& header, const CopySink& sink) override {
    return engine_->Fetch(header, sink);
  }

 private:
  ShardEngine* const engine_;
};

class ShardEngine::Replication {
 public:
  // What has the replica that a frame is for. Errors as NeighbourPeer says.
  static absl::StatusOr<std::shared_ptr<ShardCompute>> ReplicaFor(
      ShardEngine* engine, const CopyHeader& header)
      ABSL_LOCKS_EXCLUDED(engine->mutex_);
  // OK while a copy of the version is here, home or replica.
  static absl::Status CheckCopy(ShardEngine* engine, const CopyHeader& header,
                                RecordText* record)
      ABSL_LOCKS_EXCLUDED(engine->mutex_);

  // Tells the replica which epoch's frames to take.
  static void TellReplica(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->mutex_);
  // Takes the replica's step that is due, if one is. A failed one has voided
  // the replica. To be called with the turn; `compute` may be null.
  static absl::Status StepReplica(ShardCompute* compute);
  // Takes that step within a phase, which answers with the error: the epoch is
  // over.
  static absl::Status StepInPhase(ShardEngine* engine, uint64_t epoch,
                                  ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Makes the replica's step due.
  static void ReleaseReplica(ShardEngine* engine, ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Does the update where parts have second copies: nothing steps (P17).
  static absl::StatusOr<PhaseResult> Prepare(ShardEngine* engine,
                                             const Phase& phase,
                                             ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Takes the step that was prepared. A failed one voids the home.
  static absl::StatusOr<std::shared_ptr<const Snapshot>> StepHomeArrays(
      ShardEngine* engine, ShardCompute* compute, int32_t* not_finite_slice)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_REPLICATION_H_
