// The state of a ShardEngine. Its parts are in five files: shard_engine.cc
// (epochs, pull), shard_sessions.cc (sessions), shard_push.cc (landing frames),
// shard_early.cc (Grams of complete slices), shard_phases.cc (the
// coordinator's phases).
#ifndef AGG_SERVER_SHARD_SHARD_ENGINE_IMPL_H_
#define AGG_SERVER_SHARD_SHARD_ENGINE_IMPL_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/ingest/arrival_ledger.h"
#include "server/round/session_table.h"
#include "server/shard/early_grams.h"
#include "server/shard/guarded_backend.h"
#include "server/shard/pull_queue.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Lock order: phase_mutex_, then mutex_. Computation runs under phase_mutex_
// alone; callbacks run under neither. compute_ changes under both, so that it
// is the same from a phase's beginning to its end. A thread of its own computes
// early Grams, as if they were a phase.
class ShardEngine::Impl {
 public:
  Impl(const ShardOptions& options, Backend* backend,
       std::function<void(absl::Status)> on_device_lost);
  ~Impl();

  absl::Status Attach(uint64_t epoch,
                      std::function<void(absl::Status)> on_lost);
  void Lose(uint64_t epoch, const absl::Status& reason);
  absl::Status SetManifest(uint64_t epoch, const Manifest& manifest);
  absl::Status ForgetManifest(uint64_t epoch);
  absl::Status SetSession(uint64_t epoch, const SessionChange& change);
  absl::StatusOr<PhaseResult> RunPhase(const Phase& phase);
  absl::Status CheckPushed(const PushedRow& pushed) const;
  absl::StatusOr<FrameLanding> BeginFrame(FrameHeader header);
  absl::StatusOr<FrameResult> EndFrame(const FrameLanding& landing);
  int64_t Pull(uint64_t epoch, uint64_t version, bool latest,
               PullCallback callback);
  void CancelPull(int64_t id);
  ShardStatus Status() const;
  ShardStatus StatusWithDevice() const;
  void CountPulledBytes(int64_t num_bytes);
  // If a call of the backend since the last time found its device lost: ends
  // the epoch with that and tells whom it concerns. No lock may be held.
  void ReportLostDevice();
  const ShardOptions& options() const { return options_; }

 private:
  using Pulls = PullQueue<PublishedVersion>;

  // OK if `rank` may have a session in `epoch`.
  absl::Status CheckRank(uint64_t epoch, int32_t rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Makes the rank's row if there is none: large memory, hence apart from the
  // rest of SetSession and without its lock.
  absl::Status EnsureRow(uint64_t epoch, int32_t rank);

  // OK while `epoch` is the one that is on.
  absl::Status CheckEpoch(uint64_t epoch) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the manifest can still go: nobody relies on it.
  bool Unused() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !published_ && !sessions_.any_alive();
  }
  void DropManifest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_, mutex_);
  Pulls::Answer AnswerPull(const Pulls::Request& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The ledger's row of the seed, behind those of the ranks.
  int seed_row() const { return options_.max_workers; }
  // Rank (or seed row) that a frame lands in; sets landing->closed.
  absl::StatusOr<int> FrameRow(FrameLanding* landing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSeedFrame(const FrameHeader& header)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AnyBusy(int row, const FrameHeader& header) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ClaimSlices(int row, FrameLanding* landing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // That the landed slices (and zeroed ones) of the row may be copied.
  void TellBackend(const FrameLanding& landing, ShardCompute* compute);

  // phase_mutex_ for a phase, or for what else must not run beside one: the
  // next early batch comes after it, however many are ready.
  class ABSL_SCOPED_LOCKABLE PhaseLock {
   public:
    explicit PhaseLock(Impl* impl)
        ABSL_EXCLUSIVE_LOCK_FUNCTION(impl->phase_mutex_);
    ~PhaseLock() ABSL_UNLOCK_FUNCTION();
    PhaseLock(const PhaseLock&) = delete;
    PhaseLock& operator=(const PhaseLock&) = delete;

   private:
    Impl* const impl_;
  };
  std::vector<RoundRow> RowsOfOpenRound() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // To be called whenever a round opens or a session begins or ends.
  void ExpectRows() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells early_ if all expected rows have landed the slice.
  void CompleteIfLanded(int32_t slice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool EarlyGramWanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ComputeEarlyGrams();  // the thread
  void ComputeEarlyBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);

  using Closures = std::vector<std::function<void()>>;
  absl::Status CheckPhase(const Phase& phase) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_, mutex_);
  // *ready: to be run once no lock is held.
  absl::StatusOr<PhaseResult> Dispatch(const Phase& phase, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);
  absl::StatusOr<PhaseResult> Close(const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);
  // Of all slices: early results, and what they lack.
  absl::StatusOr<std::vector<SliceGram>> ClosingGrams(
      const std::vector<RoundRow>& rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);
  // Of the rows to close with.
  std::vector<int32_t> IncompleteRanks(const Phase& phase) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Freezes the round; memory_.close is there if nothing is to be computed.
  absl::Status MarkClosed(const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_, mutex_);
  absl::StatusOr<PhaseResult> CompensatedGram(const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);
  absl::StatusOr<PhaseResult> Norms(const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);
  absl::StatusOr<PhaseResult> Update(const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);
  absl::StatusOr<PhaseResult> Publish(const Phase& phase, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);
  absl::StatusOr<std::shared_ptr<const Snapshot>> SeedSnapshot(
      const Phase& phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);
  absl::StatusOr<std::shared_ptr<const Snapshot>> UpdatedSnapshot(
      const Phase& phase) ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);
  absl::StatusOr<PhaseResult> Abandon()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(phase_mutex_);

  const ShardOptions options_;
  GuardedBackend backend_;
  const std::function<void(absl::Status)> on_device_lost_;

  // Results of the round's phases, for repeats; what Update has written.
  struct PhaseMemory {
    std::optional<PhaseResult> close;
    std::vector<int32_t> compensated_tensors;
    std::optional<PhaseResult> compensated;
    std::optional<PhaseResult> norms;
    std::optional<uint64_t> updated_round;
    std::shared_ptr<const Snapshot> updated;
  };
  Mutex phase_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  PhaseMemory memory_ ABSL_GUARDED_BY(phase_mutex_);
  std::shared_ptr<ShardCompute> phase_compute_ ABSL_GUARDED_BY(phase_mutex_);

  mutable Mutex mutex_;
  CondVar claims_ended_;  // or reads by an early Gram
  CondVar early_wanted_;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  bool attached_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  bool device_lost_ ABSL_GUARDED_BY(mutex_) = false;  // for good
  std::function<void(absl::Status)> on_lost_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ShardCompute> compute_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ArrivalLedger> ledger_ ABSL_GUARDED_BY(mutex_);
  SessionTable sessions_ ABSL_GUARDED_BY(mutex_);
  uint64_t seed_session_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Snapshot> seed_ ABSL_GUARDED_BY(mutex_);
  bool published_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;  // the open round, too
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;   // the open round is closed
  std::vector<RoundRow> closed_rows_ ABSL_GUARDED_BY(mutex_);
  EarlyGrams early_ ABSL_GUARDED_BY(mutex_);
  // With a session since the open round began; who joins later takes part in
  // the next one.
  std::set<int32_t> round_ranks_ ABSL_GUARDED_BY(mutex_);
  int num_phases_ ABSL_GUARDED_BY(mutex_) = 0;  // run or wait for their turn
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Pulls pulls_ ABSL_GUARDED_BY(mutex_);
  ShardStatus counters_ ABSL_GUARDED_BY(mutex_);  // its totals only

  std::thread early_thread_;  // last: it uses the rest
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_ENGINE_IMPL_H_
