// One shard of the job: lands rows, runs the phases that the coordinator asks
// for on its slices, keeps the parameters and hands out versions.
//
// The class joins parts that know nothing of each other: ShardEpoch,
// SessionTable, HeldCopy and OpenRound decide, ShardCompute has the memory and
// the arithmetic, ComputeTurn says who computes, CheckpointKeeper has the
// files. What is left here is locking and waiting. Nested classes, each with
// a source of its own, have the rest: Waves (rounds that are published wave by
// wave), Recovery (between epochs), Replication (second copies).
#ifndef AGG_SERVER_SHARD_SHARD_ENGINE_H_
#define AGG_SERVER_SHARD_SHARD_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "proto/shard_plan.h"
#include "server/base/clock.h"
#include "server/base/file_system.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_writer.h"
#include "server/ingest/frame.h"
#include "server/params/snapshot.h"
#include "server/round/neighbour_peer.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"
#include "server/round/session_table.h"
#include "server/round/shard_options.h"
#include "server/round/shard_peer.h"
#include "server/shard/checkpoint_keeper.h"
#include "server/shard/guarded_backend.h"
#include "server/shard/open_round.h"
#include "server/shard/published_version.h"
#include "server/shard/region_grant.h"
#include "server/shard/shard_compute.h"
#include "server/shard/shard_epoch.h"

namespace agg {

// Who computes on a shard: one phase at a time, and in the gaps between phases
// a thread that computes ahead.
//
// A mutex with a gap filler: a thread that starts its next piece of work only
// when nobody has the turn or waits for it. So the coordinator, which waits for
// a phase, waits for one piece at most, however many are ready. Thread-safe.
class ABSL_LOCKABLE ComputeTurn {
 public:
  ComputeTurn() = default;
  // StopFiller, in any case.
  ~ComputeTurn() { StopFiller(); }
  ComputeTurn(const ComputeTurn&) = delete;
  ComputeTurn& operator=(const ComputeTurn&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION();
  // Never waits; whether the caller has the turn now.
  bool TryLock() ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true);
  void Unlock() ABSL_UNLOCK_FUNCTION();

  // Starts the filler's thread, once. It calls `fill` with no lock held, once
  // for one or several calls of WakeFiller; `fill` takes the turn itself, does
  // one piece of work, and calls WakeFiller if there is more.
  void StartFiller(std::function<void()> fill);
  // Returns when `fill` does not run and will not run any more. Idempotent. No
  // lock that `fill` takes may be held.
  void StopFiller();
  // Never waits for a computation, so the caller may hold locks that `fill`
  // takes. Does nothing without a filler.
  void WakeFiller();

 private:
  void RunFiller(const std::function<void()>& fill);

  Mutex turn_;
  Mutex mutex_;  // never held while somebody computes
  CondVar changed_;
  int num_users_ ABSL_GUARDED_BY(mutex_) = 0;  // have the turn or wait for it
  bool awake_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread filler_;
};

// Has the turn for its lifetime.
class ABSL_SCOPED_LOCKABLE TurnLock {
 public:
  explicit TurnLock(ComputeTurn* turn) ABSL_EXCLUSIVE_LOCK_FUNCTION(turn)
      : turn_(turn) {
    turn_->Lock();
  }
  ~TurnLock() ABSL_UNLOCK_FUNCTION() { turn_->Unlock(); }
  TurnLock(const TurnLock&) = delete;
  TurnLock& operator=(const TurnLock&) = delete;

 private:
  ComputeTurn* const turn_;
};

// Ends rows on a thread of its own: giving back gigabytes of pinned memory
// takes long, and whoever finds that nobody needs a row any more holds a lock
// that all frames take, or is in the midst of a round.
//
// Thread-safe.
class RowReleaser {
 public:
  RowReleaser();  // starts the thread
  // When all that was released has ended.
  ~RowReleaser();
  RowReleaser(const RowReleaser&) = delete;
  RowReleaser& operator=(const RowReleaser&) = delete;

  // Lets go of the row, soon: unless somebody else holds it, it ends on the
  // thread. Waits for nothing, so that the caller may hold any lock.
  void Release(std::shared_ptr<const Buffer> row);

  // Returns when what was released so far is let go. No lock may be held that
  // the end of a row takes.
  void Wait();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::shared_ptr<const Buffer>> rows_ ABSL_GUARDED_BY(mutex_);
  bool releasing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Pulls that wait for a version. It knows nothing about versions, so that it
// can be tested without a shard. T: what a pull gets that is answered with
// success. Thread-compatible: its owner's lock protects it, and the owner runs
// the callbacks that Resolve hands out without that lock.
template <typename T>
class PullQueue {
 public:
  using Callback = std::function<void(absl::StatusOr<T>)>;
  struct Request {
    uint64_t epoch = 0;
    uint64_t version = 0;
    bool latest = false;
    Callback callback;
    bool partial = false;  // also while the version is being written
  };
  using Answer = std::optional<absl::StatusOr<T>>;

  // Ids count from 1.
  int64_t Add(Request request) {
    waiting_.emplace(++last_id_, std::move(request));
    return last_id_;
  }
  void Remove(int64_t id) { waiting_.erase(id); }

  // Asks `answer` about each pull. Those that get an answer are removed, and
  // their callbacks returned, bound to it, to be run without the lock.
  std::vector<std::function<void()>> Resolve(
      const std::function<Answer(const Request&)>& answer) {
    std::vector<std::function<void()>> ready;
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      Answer result = answer(it->second);
      if (!result.has_value()) {
        ++it;
        continue;
      }
      ready.push_back([callback = std::move(it->second.callback),
                       result = *std::move(result)] { callback(result); });
      it = waiting_.erase(it);
    }
    return ready;
  }

 private:
  int64_t last_id_ = 0;
  std::map<int64_t, Request> waiting_;
};

// A round from its close on: with which rows it was closed, and what the phases
// have computed about them. Each result is kept, so that a repeated phase gives
// the same bytes (P7); an error is not kept, so that the phase may be tried
// again. Errors are those of ShardCompute. Thread-compatible: to be used with
// the turn (ComputeTurn). A default-constructed one stands for a round that is
// not closed.
class ClosedRound {
 public:
  ClosedRound() = default;
  // Makes a round closed as was offered, with the offer's result.
  explicit ClosedRound(const CloseOffer& offer)
      : rows_(offer.rows),
        row_crc32c_(offer.result.row_crc32c),
        close_(offer.result) {}
  // Makes a round closed with `rows`, and their checksums
  // (PhaseResult::row_crc32c). If slices of `incomplete_ranks` are missing
  // here, these ranks are the result of Close, and no other phase may follow.
  ClosedRound(std::vector<RoundRow> rows, std::vector<uint32_t> row_crc32c,
              std::vector<int32_t> incomplete_ranks);

  const std::vector<RoundRow>& rows() const { return rows_; }
  // Close's result, once there is one.
  const std::optional<PhaseResult>& close_result() const { return close_; }
  // Whether the phases after Close may run.
  bool has_grams() const {
    return close_.has_value() && close_->incomplete_ranks.empty();
  }

  // Computes the Grams of all slices: those in `early` (by slice of the layout)
  // are taken as they are, the others are computed.
  // REQUIRES: !close_result().has_value().
  absl::StatusOr<PhaseResult> Close(
      ShardCompute* compute, std::vector<std::optional<SliceGram>> early);
  // Computes the Grams of these slices alone (positions in the layout), as
  // Close does.
  absl::StatusOr<PhaseResult> CloseSlices(ShardCompute* compute,
                                          const std::vector<int32_t>& slices);
  // Computes compensated Grams of all slices of these tensors (ascending).
  absl::StatusOr<PhaseResult> CompensatedGram(
      ShardCompute* compute, const std::vector<int32_t>& tensors);
  absl::StatusOr<PhaseResult> Norms(ShardCompute* compute,
                                    const StepPlan& step);
  // What Update writes into. Apart from it, since an error has changed nothing
  // yet. *num_revoked and errors: as ParameterStore::NextSnapshot; 0 and OK in
  // a repeat.
  absl::Status TakeMemory(ShardCompute* compute, int* num_revoked);
  // REQUIRES: TakeMemory was OK since the Update before.
  absl::Status Update(ShardCompute* compute, const StepPlan& step);
  // What Update has written; null before.
  std::shared_ptr<const Snapshot> updated() const { return updated_; }
  // First slice with a parameter that is not finite, as ShardCompute::Update
  // says; -1 before.
  int32_t not_finite_slice() const { return not_finite_slice_; }

 private:
  std::vector<RoundRow> rows_;
  std::vector<uint32_t> row_crc32c_;
  std::optional<PhaseResult> close_;
  std::vector<int32_t> compensated_tensors_;
  std::optional<PhaseResult> compensated_;
  std::optional<PhaseResult> norms_;
  std::shared_ptr<Snapshot> next_;
  std::shared_ptr<const Snapshot> updated_;
  int32_t not_finite_slice_ = -1;
};

// A phase that a shard has been asked for and has not answered.
struct RunningPhase {
  uint64_t number = 0;  // counts the shard's phases from 1
  PhaseKind kind = PhaseKind::kClose;
  uint64_t round = 0;
  uint64_t progress = 0;  // as ShardPeer::Progress
};

// How far a round is that goes wave by wave.
struct WaveRound {
  int32_t wave = 0;                // the newest one that was closed; 0: none
  bool updated = false;            // it has been stepped, too
  PhaseResult result;              // of its update
  std::shared_ptr<Snapshot> next;  // what updates write; null before the first
};

// A round from its close until its version is shown, and what was made of it.
struct RoundInWork {
  ClosedRound closed;  // in a pipelined job, its newest closed wave
  WaveRound waves;
  bool unchanged = false;  // what was prepared changes no parameter: skipped
  StepPlan step;           // with replication: what was prepared
};

// Thread-safe. Lock order: turn_, then mutex_. Computation runs with the turn
// alone, callbacks with neither. compute_ and open_round_ change with both, so
// that they are the same from a phase's beginning to its end.
class ShardEngine : public ShardPeer {
 public:
  // `backend` is used by this engine alone and outlives it. `on_device_lost`
  // (may be null) is called at most once, from any thread, when the backend is
  // of no more use: the epoch is over then, and only a new process can help.
  ShardEngine(const ShardOptions& options, Backend* backend,
              std::function<void(absl::Status)> on_device_lost = nullptr);
  ~ShardEngine() override;
  // Sets the folder that checkpoints go to and come from. `files` outlives the
  // engine. No epoch that has made one begins again. Before the first Attach.
  // `other`: of the job that checkpoint.restore_job names, which is only read.
  // What is returned is why the folder could not be listed; the shard goes on
  // without, since its copies may be in other processes' memory.
  absl::Status SetCheckpointFolder(
      CheckpointFolder folder, FileSystem* files,
      absl::optional<CheckpointFolder> other = absl::nullopt);
  // Sets, with replication, the shards behind and before this one on the ring.
  // They outlive it. Before the first Attach.
  void SetNeighbours(NeighbourPeer* buddy, NeighbourPeer* before);

  // --- ShardPeer: the coordinator's calls ---------------------------------
  absl::StatusOr<uint64_t> Promise() override;
  // `on_lost` (may be null) is called when the backend's device is lost. Waits
  // for a phase that runs. ABORTED: a stale epoch. That checkpoints cannot be
  // listed is a part of the answer.
  absl::StatusOr<ShardInventory> Attach(
      uint64_t epoch, std::function<void(absl::Status)> on_lost) override;
  void Lose(uint64_t epoch, const absl::Status& reason) override;  // 0: any
  std::string Record() const override;
  absl::StatusOr<PhaseResult> RunPhase(const Phase& phase) override;
  void SetOnComplete(OnComplete on_complete) override {
    on_complete_ = std::move(on_complete);
  }
  void SetOnOffer(OnOffer on_offer) override {
    on_offer_ = std::move(on_offer);
  }
  // ShardInventory::life of the last Attach.
  uint64_t life() const;
  // Returns OK while that epoch is on; else what every call of it gets.
  absl::Status CheckEpoch(uint64_t epoch) const;
  // Whether the phase takes no longer than the hand-over to another thread: the
  // update of what was offered (P44), without a second copy.
  bool IsQuick(const Phase& phase) const;
  // The phase that runs, or the first of several that wait for each other;
  // nothing: none runs.
  std::optional<RunningPhase> running_phase() const;
  uint64_t Progress() const override { return bytes_progress_.count(); }
  // Takes note that a call of the backend hangs. Nothing can end it: what
  // follows is what follows when the device is lost, with this reason.
  void ReportHang(const absl::Status& reason);
  absl::Status CheckPushed(const PushedRow& pushed) const override;
  std::string name() const override;

  // --- For the neighbours: what NeighbourPeer asks for ---------------------
  // Thread-safe, and wait for no phase but the replica's step.
  absl::Status SendCombined(const CopyHeader& header, const CopySlice& slice);
  absl::Status FinishCombined(const CopyHeader& header);
  absl::Status Fetch(const CopyHeader& header, const CopySink& sink);

  // --- Push ----------------------------------------------------------------
  // Checks a frame and claims memory for its slices. The caller copies (or
  // skips) each slice's bytes in order, sets `landed` where the checksum
  // matched, and calls EndFrame in any case. May wait for a duplicate that is
  // being copied at this moment. Errors (proto/README.md): INVALID_ARGUMENT
  // (malformed; names the field), ABORTED (stale epoch, superseded session),
  // NOT_FOUND (unknown session), FAILED_PRECONDITION (a round to come, no
  // manifest yet), ALREADY_EXISTS (seed by one without the role, or seeded),
  // UNAVAILABLE (epoch lost).
  absl::StatusOr<FrameLanding> BeginFrame(FrameHeader header);
  // DATA_LOSS naming the first slice whose checksum did not match; those that
  // matched have landed all the same.
  absl::StatusOr<FrameResult> EndFrame(const FrameLanding& landing);

  // Returns the identity that the session of a frame belongs to (P45). Errors
  // as BeginFrame's, for the epoch; NOT_FOUND.
  absl::StatusOr<std::string> OwnerOf(uint64_t epoch, uint64_t session) const;

  // --- Shared memory (P39, P40) ---------------------------------------------
  // What the session may map: its row, which it alone has from now on, and the
  // versions. Errors as BeginFrame's, for the epoch and the session;
  // UNAVAILABLE: another life; FAILED_PRECONDITION: no manifest yet.
  absl::StatusOr<RegionGrant> GrantRegions(const RegionQuery& query);

  // --- Pull ----------------------------------------------------------------
  using PullCallback = std::function<void(absl::StatusOr<PublishedVersion>)>;
  // Calls back once, at once or when the version is published: the version
  // asked for (`latest`: the newest). epoch 0 means any. ABORTED (stale
  // epoch), OUT_OF_RANGE (version gone, or above the next one; names the
  // current one), FAILED_PRECONDITION (a version above the last one of a
  // finished job), UNAVAILABLE (epoch lost, shutting down). Returns an id for
  // CancelPull, or 0.
  // `partial`: also a version that a pipelined round is writing, with its
  // progress.
  int64_t Pull(uint64_t epoch, uint64_t version, bool latest,
               PullCallback callback, bool partial = false);
  // The callback will not be called any more, unless it already runs.
  void CancelPull(int64_t id);
  // Must be called after each use of the backend, with no lock held: if the
  // device was found lost, ends the epoch and calls on_lost and on_device_lost.
  // By others for what is copied behind a version.
  void ReportLostDevice() ABSL_LOCKS_EXCLUDED(turn_, mutex_);
  // A version was written over before its reader had taken the last bytes.
  void CountOvertakenPull();
  void CountPulledBytes(int64_t num_bytes, bool in_place = false,
                        bool on_device = false);

  // Returns when the memory is free of rows of which this engine has let go so
  // far: sessions have ended that had them for themselves.
  void AwaitEndedRows() { releaser_.Wait(); }

  ShardStatus Status() const;
  // Status, and the device's memory, for which a driver is asked.
  ShardStatus StatusWithDevice() const;

 private:
  class Recovery;
  class Replication;
  class Waves;
  using Pulls = PullQueue<PublishedVersion>;
  using Closures = std::vector<std::function<void()>>;
  // What a manifest had: large, and a thread; to be dropped without locks.
  struct Former {
    std::shared_ptr<ShardCompute> compute;
    std::shared_ptr<CheckpointWriter> writer;
  };

  void EndForGood(const absl::Status& found) ABSL_LOCKS_EXCLUDED(mutex_);
  // Counts epochs that have made these checkpoints as promised (P20): they have
  // been, though this process has no memory of them. It leaves out `epoch`, if
  // that one is on.
  void NoteMade(const CheckpointListing& checkpoints, uint64_t epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Phases of what the job is.
  absl::StatusOr<PhaseResult> RunJobPhase(const Phase& phase)
      ABSL_LOCKS_EXCLUDED(turn_, mutex_);
  absl::Status InstallManifest(uint64_t epoch, const Manifest& manifest);
  absl::StatusOr<PhaseResult> ReportManifest(uint64_t epoch) const;
  absl::Status GiveUpManifest(uint64_t epoch);
  absl::Status TakeFacts(uint64_t epoch, const JobFacts& facts);
  absl::Status ChangeSession(uint64_t epoch, const SessionChange& change);
  Former DropManifest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_, mutex_);
  // Whether the manifest may still change. REQUIRES: there is one.
  bool ManifestUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static absl::Status NoManifest();

  // OK if `rank` may have a session in `epoch`.
  absl::Status CheckRank(uint64_t epoch, int32_t rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FinishJob(uint64_t epoch);  // SetSession{finished}
  // Makes the rank's common row if there is none. `session`: as of ReserveRow.
  absl::Status EnsureRow(uint64_t epoch, int32_t rank, uint64_t session);
  // Whether a row is granted to the session already.
  bool HasOwnRow(const SessionChange& change) ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasRow(const SessionChange& change) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeChange(const SessionChange& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Rows that were granted to sessions of the rank that have ended, and are not
  // held. Their memory ends later, on another thread.
  void DropEndedRows(int32_t rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropAllEndedRows() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void GrantRow(const RegionQuery& query, int32_t rank, RegionGrant* grant)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // INVALID_ARGUMENT: a frame in place, and its session has no such place.
  static absl::Status CheckPlace(const FrameLanding& landing,
                                 ShardCompute* compute);
  absl::Status AdmitFrame(FrameLanding* landing) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // ABORTED if the manifest that the landing began with is gone.
  absl::Status CheckOwner(const FrameLanding& landing) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotifyRowLanded(const FrameLanding& landing, ShardCompute* compute);
  // Tells somebody of this process who hears of waves, if there is news.
  void TellOfWaves(const FrameHeader& header, int32_t waves);
  void CountLanded(const FrameLanding& landing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Pulls::Answer AnswerPull(const Pulls::Request& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the version that is being written: nobody gets it. What is returned is
  // to be run without locks.
  Closures EndProgress(const absl::Status& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends all pulls, and the version that is being written, likewise.
  Closures EndPulls(const absl::Status& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The calls of those pulls that have an answer now; to be run without locks.
  Closures ResolvePulls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What the gap filler does: the replica's step, one batch of early Grams.
  void Fill() ABSL_LOCKS_EXCLUDED(turn_, mutex_);
  void ComputeEarlyBatch() ABSL_LOCKS_EXCLUDED(turn_, mutex_);
  // Wakes the gap filler if it has early Grams to compute. To be called
  // whenever a slice may have become complete.
  void WakeFiller() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- Offers (P44): a close of the open round, all of whose rows are
  // complete, if it is small and nobody has the turn.
  void OfferClose(uint64_t epoch) ABSL_LOCKS_EXCLUDED(turn_, mutex_);
  std::shared_ptr<const CloseOffer> MakeOffer(uint64_t epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_, mutex_);
  // What the offer says of the row stays readable when the frame, of a higher
  // attempt, takes the row.
  absl::Status ParkOffered(const FrameLanding& landing)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Offered(const std::vector<RoundRow>& rows) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Closes the round as was offered. REQUIRES: Offered(those rows).
  void TakeOffer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_, mutex_);
  // Drops the offer, and its rows: they do not stand any more.
  void DropOffer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops it, and another one may be made.
  void ForgetOffer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets offered rows of this session: they are not the open round's any
  // more.
  void ForgetOffered(uint64_t session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // OK if the round is closed, with the rows that the phase names, if it names
  // any, or is offered with these.
  absl::Status CheckClosed(const Phase& phase) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_, mutex_);
  absl::Status CheckPhase(const Phase& phase) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_, mutex_);
  // *ready: to be run once no lock is held.
  absl::StatusOr<PhaseResult> Dispatch(const Phase& phase, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  absl::Status MarkClosed(const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_, mutex_);
  absl::StatusOr<PhaseResult> Close(const Phase& phase, ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  absl::StatusOr<PhaseResult> Update(const Phase& phase, ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // Update, and Publish if the phase publishes and nothing is replicated.
  absl::StatusOr<PhaseResult> RunUpdate(const Phase& phase,
                                        ShardCompute* compute, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // Whether an update that publishes has done so already.
  bool HasPublished(const Phase& update) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The landed seed becomes the arrays, and waits in loaded_.
  absl::StatusOr<PhaseResult> LoadSeed(const Phase& phase,
                                       ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  absl::StatusOr<PhaseResult> Publish(const Phase& phase, ShardCompute* compute,
                                      Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // OK if the phase can publish. *repeated: it has done so already; *prepared:
  // the version is there.
  absl::Status CheckPublish(const Phase& phase, bool* repeated,
                            bool* prepared) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // Waits until no frame of the open round is landing; none starts after it.
  void AwaitLandings() ABSL_LOCKS_EXCLUDED(mutex_);
  // Shows the version that was prepared; the next round is open.
  absl::Status TakeStep(ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // Arrays may be between two versions: this epoch cannot go on.
  void BreakEpoch(uint64_t epoch, const char* where, const absl::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<PhaseResult> Abandon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);

  // Publishes loaded_ as the version that the home is at.
  void ShowLoaded(ShardCompute* compute) ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  absl::StatusOr<PhaseResult> Capture(const Phase& phase, ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  // kCheckpointProgress, kSeal, kReadManifest, kVerify: these wait for a disk,
  // and for no phase.
  absl::StatusOr<PhaseResult> RunCheckpointPhase(const Phase& phase)
      ABSL_LOCKS_EXCLUDED(turn_, mutex_);

  ShardOptions options_;  // as they are from the first Attach on
  const std::function<void(absl::Status)> on_device_lost_;
  agg::Progress bytes_progress_;  // of phases whose time grows with bytes (P31)
  GuardedBackend backend_;        // each of its calls is progress
  RowReleaser releaser_;
  NeighbourPeer* buddy_ = nullptr;
  NeighbourPeer* before_ = nullptr;

  ComputeTurn turn_ ABSL_ACQUIRED_BEFORE(mutex_);
  RoundInWork round_ ABSL_GUARDED_BY(turn_);
  // Result of the publish of the version that is shown, for its repeats (P7).
  PhaseResult published_ ABSL_GUARDED_BY(turn_);
  // The home's arrays as a version that nobody has been shown; null: none.
  std::shared_ptr<const Snapshot> loaded_ ABSL_GUARDED_BY(turn_);
  CheckpointKeeper checkpoints_;  // synchronises itself
  OnComplete on_complete_;        // constant from the first Attach on; or null
  OnOffer on_offer_;              // the same

  mutable Mutex mutex_;
  CondVar claims_ended_;  // a frame's, or an early Gram has ended its reads
  ShardEpoch epoch_ ABSL_GUARDED_BY(mutex_);
  uint64_t life_ ABSL_GUARDED_BY(mutex_);  // of what rows hold
  uint64_t member_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t recovered_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // by kRecover
  SessionTable sessions_ ABSL_GUARDED_BY(mutex_);
  JobFacts facts_ ABSL_GUARDED_BY(mutex_);
  HeldCopy home_ ABSL_GUARDED_BY(mutex_);
  // Both are null before the manifest.
  std::shared_ptr<ShardCompute> compute_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<OpenRound> open_round_ ABSL_GUARDED_BY(mutex_);
  Pulls pulls_ ABSL_GUARDED_BY(mutex_);
  // Progress of the version that waves write; null before the first one is
  // written.
  std::shared_ptr<VersionProgress> progress_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Snapshot> written_ ABSL_GUARDED_BY(mutex_);  // likewise
  // Offer of the open round (P44): whether it was made, and the offer while it
  // stands.
  bool offered_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const CloseOffer> offer_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, RunningPhase> running_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_phases_ ABSL_GUARDED_BY(mutex_) = 0;
  ShardStatus totals_ ABSL_GUARDED_BY(mutex_);  // its counters alone
  std::atomic<int64_t> overtaken_pulls_{0};     // counted with any lock held
};

// What leads from one epoch to the next. This and the nested classes below have
// functions on an engine, and nothing of their own.
class ShardEngine::Recovery {
 public:
  // Whether anything is seeded here.
  static bool HasCopies(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->mutex_);
  // What Attach answers. If the epoch begins, a seeded shard keeps its memory,
  // and any other forgets what it has.
  static absl::StatusOr<ShardInventory> TakeInventory(ShardEngine* engine,
                                                      uint64_t epoch,
                                                      bool begins,
                                                      Former* former)
      ABSL_LOCKS_EXCLUDED(engine->turn_, engine->mutex_);

  // kRecover, kFetch, kOpen. `compute` may be null. *ready: to be run once no
  // lock is held.
  static absl::StatusOr<PhaseResult> Run(ShardEngine* engine,
                                         const Phase& phase,
                                         ShardCompute* compute, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);

 private:
  static absl::StatusOr<PhaseResult> Recover(ShardEngine* engine,
                                             const Phase& phase,
                                             ShardCompute* compute,
                                             Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::StatusOr<PhaseResult> FetchCopies(ShardEngine* engine,
                                                 const Phase& phase,
                                                 ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::StatusOr<PhaseResult> Open(ShardEngine* engine,
                                          const Phase& phase, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);

  // A round that was closed, and not updated, takes rows again.
  static void ReopenRound(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
  // Forgets all of the job but its facts.
  static Former Forget(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
  // Forgets all of the job, since it waits for a Seed, and opens the epoch.
  static void ForgetAll(ShardEngine* engine, const Phase& phase,
                        Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);

  // One function for each CopyAction. `repeated`: an earlier call has been
  // carried out in this epoch.
  static absl::Status RecoverHome(ShardEngine* engine, const Phase& phase,
                                  bool repeated, ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status VoidHome(ShardEngine* engine)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status KeepHome(ShardEngine* engine, const VersionId& target,
                               ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status StepHome(ShardEngine* engine, const VersionId& target,
                               ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status LoadHome(ShardEngine* engine, const Phase& phase,
                               ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::Status FetchHome(ShardEngine* engine, const Phase& phase,
                                ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // The arrays are those of `id` now, and loaded_ is their snapshot.
  static void PlaceHome(ShardEngine* engine, const VersionId& id,
                        RecordText record, ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
};

// Second copies: what goes to the buddy, and comes from the shard before.
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

// The phases of a round that is published wave by wave (P43).
class ShardEngine::Waves {
 public:
  // A phase with a wave: close, compensated_gram and update of each wave in
  // turn, abandon of one that is not updated. The last update is the prepared
  // round, which Publish shows. FAILED_PRECONDITION out of turn, or for a job
  // that is not pipelined, and as ShardEngine::CheckPhase; INVALID_ARGUMENT for
  // a wave or a kind that does not exist. *ready: as ShardEngine::Dispatch.
  static absl::StatusOr<PhaseResult> Run(ShardEngine* engine,
                                         const Phase& phase, Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);

 private:
  static absl::Status CheckWave(ShardEngine* engine, const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
  static absl::StatusOr<PhaseResult> Close(ShardEngine* engine,
                                           const Phase& phase,
                                           ShardCompute* compute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Freezes the wave's slices, or names the rows that lack some.
  static void MarkClosed(ShardEngine* engine, const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
  static absl::StatusOr<PhaseResult> Abandon(ShardEngine* engine,
                                             const Phase& phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  static absl::StatusOr<PhaseResult> Update(ShardEngine* engine,
                                            const Phase& phase,
                                            ShardCompute* compute,
                                            Closures* ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_);
  // Its tensors are in the next version.
  static Closures Show(ShardEngine* engine, int wave)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(engine->turn_, engine->mutex_);
};

// A shard's copies as its neighbours see them. Apart from the engine, so that
// it needs no second base class. Thread-safe.
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

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_ENGINE_H_
