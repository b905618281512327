// The arithmetic of a shard for one manifest: rows, parameters and the backend
// together, without any protocol.
#ifndef AGG_SERVER_SHARD_SHARD_COMPUTE_H_
#define AGG_SERVER_SHARD_SHARD_COMPUTE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/dtype.h"
#include "proto/manifest_size.h"
#include "server/base/dcheck.h"
#include "server/ingest/frame.h"
#include "server/ingest/gradient_rows.h"
#include "server/ingest/shard_layout.h"
#include "server/params/parameter_store.h"
#include "server/params/snapshot.h"
#include "server/params/snapshot_finisher.h"
#include "server/round/phase.h"
#include "server/round/shard_options.h"
#include "server/shard/memory_plan.h"
#include "server/shard/shard_replica.h"

namespace agg {

// The rows of a round for one call of the backend. Keeps them alive: a session
// may end while its row is read. Thread-compatible.
class RowBuffers {
 public:
  RowBuffers() = default;
  RowBuffers(const GradientRows& rows, const std::vector<RoundRow>& named) {
    for (const RoundRow& row : named) Add(rows, row);
  }

  // REQUIRES: there is such a row.
  void Add(const GradientRows& rows, const RoundRow& row) {
    AGG_DCHECK(rows.FindAttempt(row.rank, row.session, row.attempt) != nullptr);
    owners_.push_back(rows.FindAttempt(row.rank, row.session, row.attempt));
    pointers_.push_back(owners_.back().get());
  }

  absl::Span<const Buffer* const> pointers() const { return pointers_; }

 private:
  std::vector<std::shared_ptr<const Buffer>> owners_;
  std::vector<const Buffer*> pointers_;
};

// What the step of one wave means (P43): which rows each of its tensors has.
struct SplitStep {
  // Steps of some tensors each, all of which have the same rows: the others
  // are excluded. Together with `unchanged` all tensors of the wave, once.
  std::vector<StepPlan> steps;
  std::vector<int32_t> unchanged;  // ascending; tensors without a row
};

// A coefficient that is not a number leaves its row out of that tensor.
// INVALID_ARGUMENT if the lists do not fit `rows`, tensors do not ascend, or
// the step is not per tensor.
absl::StatusOr<SplitStep> SplitByRows(const StepPlan& step,
                                      const std::vector<RoundRow>& rows);

// Adds what narrowing a version to the job's pull_dtype has lost of a slice:
// how many of its values are finite, and infinite in `dtype`; a first one sets
// loss->slice, if that is not a smaller one. kF32: none.
void AddInfinite(absl::Span<const float> values, DType dtype, int32_t slice,
                 NarrowingLoss* loss);

// Adds how many of the values are not zero, and how many of these are zero in
// `dtype`.
void AddVanished(absl::Span<const float> values, DType dtype,
                 NarrowingLoss* loss);

// Serves one caller at a time; rows, seed and store have rules of their own.
class ShardCompute {
 public:
  // INVALID_ARGUMENT for a bad manifest or a tensor of an unknown group;
  // FAILED_PRECONDITION when the memory plan exceeds the budget,
  // RESOURCE_EXHAUSTED when there is no such memory; both with its numbers.
  static absl::StatusOr<std::unique_ptr<ShardCompute>> Create(
      const ShardOptions& options, Backend* backend, const Manifest& manifest);

  std::shared_ptr<const ShardLayout> layout() const { return layout_; }
  double gram_products_at_once() const {
    return backend_->gram_products_at_once();
  }
  GradientRows* rows() { return rows_.get(); }
  ParameterStore* store() { return store_.get(); }

  // Plans memory with that many rows more than there are. Rows of successors
  // are not in it: no Join is refused because of them, since they go with the
  // round, which may wait for that Join.
  MemoryPlan PlanWith(int64_t num_more_rows) const;
  // Plans memory as it is now, with that many successors' rows more.
  MemoryPlan PlanWithSuccessors(int64_t num_more) const;
  // Allocates memory for one more row, which `plan` has counted: rows()->Add is
  // what makes it one. Thread-safe. FAILED_PRECONDITION when the plan exceeds
  // the budget, RESOURCE_EXHAUSTED when there is no such memory.
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateRow(
      const MemoryPlan& plan) const;
  // Allocates a row for a rank whose row is granted. It takes pages when they
  // are written, as the former's are free. It is counted once it is granted,
  // too; null: none.
  std::unique_ptr<Buffer> AllocateSuccessor() const;

  // Where a slice of a session's row, or of the seed, lands. Callers hold one
  // lock.
  // REQUIRES: rows()->Find(rank, session), or TakeSeed() was OK.
  SlicePlace LandingPlace(PushKind kind, int32_t rank, uint64_t session,
                          int32_t slice);
  // Takes what a seed lands in, if that has not been done, with
  // ParameterStore::NextSnapshot's errors. Callers hold the same lock.
  absl::Status TakeSeed();
  std::shared_ptr<Snapshot> seed() const { return seed_; }
  // The seed has become a version: its memory is a snapshot like others now.
  void ReleaseSeed() { seed_ = nullptr; }

  // Computes partial Grams of slices, given and returned in the layout's order.
  // Those of one call to the backend take kMaxGramBytes at most, besides the
  // result, and are of EarlyGrams::kMaxElements of each row at most, or of one
  // slice: each call that ends is progress (P31).
  absl::StatusOr<std::vector<SliceGram>> Gram(
      const std::vector<RoundRow>& rows, const std::vector<int32_t>& slices,
      bool compensated);
  absl::StatusOr<std::vector<SliceGram>> Gram(
      const RowBuffers& buffers, const std::vector<int32_t>& slices,
      bool compensated);
  static constexpr int64_t kMaxGramBytes = int64_t{16} << 20;

  absl::StatusOr<std::vector<SliceNorms>> Norms(
      const std::vector<RoundRow>& rows, const StepPlan& step);

  // Combines and steps, writing the next version into `snapshot`, whose float32
  // bytes may come later (Snapshot::WhenReadable).
  // *not_finite_slice: the first slice (of the plan) that has a parameter that
  // is not finite; -1: none has. After an error master weights may hold a part
  // of the update.
  absl::Status Update(const std::vector<RoundRow>& rows, const StepPlan& step,
                      const std::shared_ptr<Snapshot>& snapshot,
                      int32_t* not_finite_slice);

  // Updates a wave's tensors alone; those without rows get their
  // values of `before`. All bytes are there: the next wave may take them.
  absl::Status UpdateWave(const std::vector<RoundRow>& rows,
                          const StepPlan& step, const Snapshot& before,
                          Snapshot* snapshot, int32_t* not_finite_slice);

  // Update in two halves. Combine leaves the combined gradient in combined(),
  // and calls `done` for slices [begin, end) of the layout as soon as theirs is
  // there; all else stays as it is. Step takes it, with WithoutRows(step).
  using CombinedSink = std::function<void(size_t begin, size_t end)>;
  absl::Status Combine(const std::vector<RoundRow>& rows, const StepPlan& step,
                       const CombinedSink& done);
  absl::Status Step(const StepPlan& step,
                    const std::shared_ptr<Snapshot>& snapshot,
                    int32_t* not_finite_slice);
  const Buffer& combined() const { return *combined_; }
  // Loss of the last Update, UpdateWave or Step. What vanishes is looked at in
  // kComparedElements, where the float32 bytes are there at once.
  const NarrowingLoss& narrowing() const { return narrowing_; }
  static constexpr int64_t kComparedElements = int64_t{1} << 16;
  // The second copy of the neighbour's part; null without replication.
  ShardReplica* replica() { return replica_.get(); }

  // Makes the float32 bytes of `snapshot` (a landed seed) the parameters.
  absl::Status LoadSeed(Snapshot* snapshot);

 private:
  ShardCompute(const ShardOptions& options, Backend* backend)
      : options_(options), backend_(backend) {}
  absl::Status AllocateCopies();
  MemoryPlan PlanRows(int64_t num_rows, int64_t num_successors = 0) const;
  // Appends the Grams of `slices`, in one call to the backend.
  absl::Status AppendGrams(absl::Span<const Buffer* const> buffers,
                           absl::Span<const int32_t> slices, bool compensated,
                           std::vector<SliceGram>* grams);
  // A request to the backend, and what its spans point into.
  struct FilledUpdate;
  absl::Status FillUpdate(const std::vector<RoundRow>& rows,
                          const StepPlan& step, FilledUpdate* filled);
  // Copies the bytes of these tensors (ascending) from `before`.
  void CopyTensors(const std::vector<int32_t>& tensors, const Snapshot& before,
                   Snapshot* snapshot) const;
  struct Deferral {
    bool on_demand = false;  // the float32 bytes may wait for a reader
    bool deferred = false;   // set: they come later
  };
  // `deferral` null: all bytes must be there.
  absl::Status WriteVersion(const std::vector<RoundRow>* rows,  // null: Step
                            const StepPlan& step, Snapshot* snapshot,
                            Deferral* deferral, int32_t* not_finite_slice);
  absl::Status WriteFloatsLater(const std::vector<RoundRow>* rows,
                                const StepPlan& step,
                                const std::shared_ptr<Snapshot>& snapshot,
                                int32_t* not_finite_slice);
  void LookAtNarrowing(const StepPlan& step, const Snapshot& snapshot);
  // Whether the next version's float32 bytes go to the host only for a reader.
  bool FloatsOnDemand() const;

  const ShardOptions options_;
  Backend* const backend_;
  std::shared_ptr<const ShardLayout> layout_;
  ManifestSize manifest_size_;  // of layout_->manifest
  std::vector<GroupOptions> group_of_tensor_;
  std::unique_ptr<GradientRows> rows_;
  std::unique_ptr<ParameterStore> store_;
  // The last version, and the one before, if their float32 bytes came, or come,
  // later.
  std::weak_ptr<const Snapshot> last_deferred_, before_last_;
  SnapshotFinisher finisher_{backend_};  // ends before master and snapshots
  NarrowingLoss narrowing_;
  int64_t next_compared_ = 0;         // element of the layout
  std::unique_ptr<Buffer> combined_;  // null without replication, as:
  std::unique_ptr<ShardReplica> replica_;
  std::shared_ptr<Snapshot> seed_;  // null before its first use, and after it
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_COMPUTE_H_
