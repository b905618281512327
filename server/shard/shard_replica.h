// The second copy of a neighbour's part (P15): arrays that take the same steps
// as the home's, by the combined gradients that the home sends (P17).
#ifndef AGG_SERVER_SHARD_SHARD_REPLICA_H_
#define AGG_SERVER_SHARD_SHARD_REPLICA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "proto/shard_plan.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/ingest/shard_layout.h"
#include "server/round/neighbour_peer.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_options.h"
#include "server/shard/shard_epoch.h"

namespace agg {

// Sends all slices of all arrays of one copy, from the process that has it to
// the one that has lost it (P15): array by array, each slice by slice in the
// layout's order. Arrays are numbered as in checkpoints: 0 parameters, 1
// state0, 2 state1. `read` fills a span with an array, padding included; 4
// bytes of host memory for each element are taken meanwhile. Errors: those of
// `read` and of `sink`; RESOURCE_EXHAUSTED: there is no such memory.
absl::Status SendArrays(
    const ShardLayout& layout, int num_arrays,
    const std::function<absl::Status(int array, absl::Span<float> to)>& read,
    const std::function<absl::Status(const CopySlice&)>& sink);

// Where arrays come in. Each is filled, then finished, one after the other.
class ArrayTarget {
 public:
  virtual ~ArrayTarget() = default;
  // Host memory of the size of the layout. RESOURCE_EXHAUSTED: there is none.
  virtual absl::StatusOr<absl::Span<float>> Destination(int array) = 0;
  // What is in Destination becomes the array.
  virtual absl::Status Finish(int array) = 0;
};

// The other end of SendArrays, which sees that no slice is missing.
// Thread-compatible.
class ArrayReceiver {
 public:
  // Both outlive it.
  ArrayReceiver(const ShardLayout* layout, int num_arrays, ArrayTarget* target)
      : layout_(layout), num_arrays_(num_arrays), target_(target) {}

  // INTERNAL for another slice than the next one, or of another size; errors of
  // the target.
  absl::Status Take(const CopySlice& slice);
  // DATA_LOSS if slices are missing.
  absl::Status Finish() const;

 private:
  const ShardLayout* const layout_;
  const int num_arrays_;
  ArrayTarget* const target_;
  int array_ = 0;        // that comes next,
  size_t position_ = 0;  // and its slice, in the layout
};

// Frames come from any thread, and take no turn: they wait for the replica's
// step and for nothing else. All else is part of a phase, with the turn
// (ComputeTurn, shard_engine.h). Thread-safe in this sense.
class ShardReplica {
 public:
  // Makes the replica of part `ordinal` - 1 on the ring. Errors:
  // MakeShardLayout's, GroupsOf's.
  static absl::StatusOr<std::unique_ptr<ShardReplica>> Create(
      const ShardOptions& options, Backend* backend, const Manifest& manifest);
  // Takes its memory, once. Errors: Backend::Allocate's.
  absl::Status Allocate();
  const std::shared_ptr<const ShardLayout>& layout() const { return layout_; }

  // What is known about it now.
  HeldCopy copy() const;

  // --- The neighbour's frames -----------------------------------------------
  // Land and CheckLanded are as NeighbourPeer::SendCombined and FinishCombined.
  absl::Status Land(const CopyHeader& header, const CopySlice& slice);
  absl::Status CheckLanded(const CopyHeader& header) const;
  // Takes frames of this epoch while `end` is OK; others stop waiting.
  void SetEpoch(uint64_t epoch, const absl::Status& end);
  // Sets what is called, with locks held, when a frame waits for a step that
  // nobody has asked for. To be set before the first frame.
  void set_wake(std::function<void()> wake) { wake_ = std::move(wake); }

  // --- Rounds ---------------------------------------------------------------
  // The plan of the round's step; its slices come by Land.
  absl::Status Prepare(const Phase& phase);
  // OK if it holds all that the step to `version` takes, or is there already.
  absl::Status CheckPrepared(uint64_t version) const;
  // Allows the step: all shards are prepared.
  void Release();
  // Takes the step that was released, if there is one. A failed one voids it.
  absl::Status StepIfReleased();

  // --- Between epochs -------------------------------------------------------
  // Makes a step that was released and not taken wait for Recover.
  void Hold();
  // `repeated`: it may be at the target by what an earlier call has begun.
  absl::Status Recover(CopyAction action, const VersionId& target,
                       bool repeated);
  // Gets all of the copy from `peer`; each slice is progress. Void until it is
  // all there.
  absl::Status Fetch(const CopyHeader& header, NeighbourPeer* peer,
                     Progress* progress);
  // Fills `to` with an array, 0 to 2, padding included.
  absl::Status Read(int array, absl::Span<float> to) const;

 private:
  struct Plan {
    bool known = false;
    bool unchanged = false;  // a skipped round: nothing lands
    StepPlan step;
    RecordText record;  // of the next version
  };

  ShardReplica(const ShardOptions& options, Backend* backend)
      : options_(options), backend_(backend) {}
  // Whether a frame of `id` may land; false: it has to wait.
  absl::StatusOr<bool> Admit(const CopyHeader& header)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status BeginPrepare(uint64_t epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AllLanded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndPrepareIfWhole() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What was prepared is gone, or is in the arrays.
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeStep();
  absl::Status StepArrays(const StepPlan& step);

  const ShardOptions options_;
  Backend* const backend_;
  std::shared_ptr<const ShardLayout> layout_;
  std::vector<GroupOptions> group_of_tensor_;
  std::unique_ptr<Buffer> arrays_[3];  // parameters, state0, state1
  std::unique_ptr<Buffer> incoming_;   // written by Land, read by a step
  std::function<void()> wake_;

  mutable Mutex mutex_;
  CondVar changed_;
  HeldCopy copy_ ABSL_GUARDED_BY(mutex_){0};
  Plan plan_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> landed_ ABSL_GUARDED_BY(mutex_);  // by slice here
  size_t num_landed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_REPLICA_H_
