// The arithmetic of a shard for one manifest: rows, parameters and the backend
// together, without any protocol.
#ifndef AGG_SERVER_SHARD_SHARD_COMPUTE_H_
#define AGG_SERVER_SHARD_SHARD_COMPUTE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/optimizer_step.h"
#include "server/ingest/gradient_rows.h"
#include "server/ingest/shard_layout.h"
#include "server/params/parameter_store.h"
#include "server/params/snapshot.h"
#include "server/round/phase.h"
#include "server/shard/memory_plan.h"

namespace agg {

// Hyperparameters of one tensor group.
struct GroupOptions {
  std::string name;
  float learning_rate_factor = 1.0f;
  float weight_decay = 0.0f;
};

struct ShardOptions {
  int32_t ordinal = 0;
  int32_t num_shards = 1;
  int32_t workers = 1;  // expected in round 0
  int32_t max_workers = 1;
  DType push_dtype = DType::kF32;
  DType pull_dtype = DType::kF32;
  OptimizerOptions optimizer;
  float weight_decay = 0.0f;  // of tensors whose group says nothing
  std::vector<GroupOptions> groups;
  MemoryBudget memory_budget;
  // Compute a slice's Gram as soon as its rows are complete; the results are
  // the same.
  bool early_gram = true;
};

// Phases are serial (one caller at a time); rows and store have their own
// rules.
class ShardCompute {
 public:
  // INVALID_ARGUMENT for a bad manifest or a tensor of an unknown group;
  // FAILED_PRECONDITION when the memory plan exceeds the budget,
  // RESOURCE_EXHAUSTED when there is no such memory; both with its numbers.
  static absl::StatusOr<std::unique_ptr<ShardCompute>> Create(
      const ShardOptions& options, Backend* backend, const Manifest& manifest);

  std::shared_ptr<const ShardLayout> layout() const { return layout_; }
  GradientRows* rows() { return rows_.get(); }
  ParameterStore* store() { return store_.get(); }
  Backend* backend() { return backend_; }

  // With that many rows more than there are.
  MemoryPlan PlanWith(int64_t num_more_rows) const;
  // Memory for one more row, which `plan` has counted: rows()->Add is what
  // makes it one. Thread-safe. FAILED_PRECONDITION when the plan exceeds the
  // budget, RESOURCE_EXHAUSTED when there is no such memory.
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateRow(
      const MemoryPlan& plan) const;

  // Partial Grams of slices, given and returned in the layout's order.
  absl::StatusOr<std::vector<SliceGram>> Gram(
      const std::vector<RoundRow>& rows, const std::vector<int32_t>& slices,
      bool compensated);

  absl::StatusOr<std::vector<SliceNorms>> Norms(
      const std::vector<RoundRow>& rows, const StepPlan& step);

  // Combines and steps, writing the next version into `snapshot`. After an
  // error master weights may hold a part of the update.
  absl::Status Update(const std::vector<RoundRow>& rows, const StepPlan& step,
                      Snapshot* snapshot);

  // Makes the float32 bytes of `snapshot` (a landed seed) the parameters.
  absl::Status LoadSeed(Snapshot* snapshot);

 private:
  ShardCompute(const ShardOptions& options, Backend* backend)
      : options_(options), backend_(backend) {}
  absl::Status ResolveGroups();
  MemoryPlan PlanRows(int64_t num_rows) const;
  // What a step's plan means for each slice; spans point into *compact.
  absl::Status FillUpdate(const std::vector<RoundRow>& rows,
                          const StepPlan& step,
                          std::vector<const Buffer*>* buffers,
                          std::vector<double>* compact,
                          std::vector<UpdateRange>* ranges,
                          UpdateRequest* request);

  const ShardOptions options_;
  Backend* const backend_;
  std::shared_ptr<const ShardLayout> layout_;
  std::vector<GroupOptions> group_of_tensor_;
  std::unique_ptr<GradientRows> rows_;
  std::unique_ptr<ParameterStore> store_;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_SHARD_COMPUTE_H_
