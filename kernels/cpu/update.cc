// One pass over the blocks for each call; the sums of Norms are added in the
// order of the blocks.
#include "kernels/cpu/update.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/block_plan.h"
#include "kernels/cpu/update_kernel.h"
#include "kernels/row_format.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"

namespace agg {
namespace {

// Row elements below which waking threads costs more than it brings.
constexpr int64_t kInlineRowElements = int64_t{64} << 10;

// A snapshot from this size on does not stay in the caches until it is sent,
// and streaming it saves reading it first (sgd: 11% at P = 8, 25% at P = 1).
constexpr int64_t kStreamElements = int64_t{4} << 20;

float* FloatsAt(Buffer* buffer, int64_t begin) {
  if (buffer == nullptr) return nullptr;
  return reinterpret_cast<float*>(buffer->host()) + begin;
}

// Which call the blocks are computed for.
enum class Work : uint8_t { kUpdate, kCombine, kStep, kNorms };

// What the blocks of one request share.
class UpdateRun {
 public:
  UpdateRun(const UpdateRequest& request, Work work, ThreadPool* pool)
      : request_(request),
        pool_(pool),
        // A step's rows may be gone.
        num_rows_(work == Work::kStep ? 0 : request.rows.size()) {
    std::vector<ElementRange> ranges;
    ranges.reserve(request.ranges.size());
    constants_.reserve(request.ranges.size());
    for (const UpdateRange& update : request.ranges) {
      ranges.push_back(update.range);
      constants_.push_back(
          work == Work::kCombine
              ? StepConstants()
              : MakeStepConstants(request.optimizer, request.step,
                                  update.learning_rate, update.weight_decay,
                                  work == Work::kNorms ? 1.0f : update.trust));
    }
    plan_ = PlanBlocks(ranges);
    row_pointers_.resize(num_rows_ * pool->num_threads());
    if (request.dtype == DType::kI8) {
      scale_pointers_.resize(row_pointers_.size());
    }
  }

  const BlockPlan& plan() const { return plan_; }

  // Calls compute(block_index, kernel) for every block.
  void ForEachBlock(
      absl::FunctionRef<void(int64_t, const UpdateBlock&)> compute) {
    // A step reads the combined gradient as others do a row.
    const auto num_rows = static_cast<int64_t>(std::max<size_t>(num_rows_, 1));
    const bool wake = plan_.num_elements * num_rows > kInlineRowElements;
    pool_->ForEach(plan_.num_units(), wake, [&](int64_t unit, int thread) {
      for (int64_t block = plan_.unit_begins[unit];
           block < plan_.unit_begins[unit + 1]; ++block) {
        compute(block, KernelOf(plan_.blocks[block], thread));
      }
    });
  }

 private:
  // Of the rows; null if they have none.
  const float* const* ScalesOf(const Block& block, int thread) {
    if (scale_pointers_.empty()) return nullptr;
    const float** const scales = scale_pointers_.data() + thread * num_rows_;
    for (size_t r = 0; r < num_rows_; ++r) {
      scales[r] = ScalesAt(*request_.rows[r], block.begin);
    }
    return scales;
  }

  UpdateBlock KernelOf(const Block& block, int thread) {
    const char** const rows = row_pointers_.data() + thread * num_rows_;
    for (size_t r = 0; r < num_rows_; ++r) {
      rows[r] =
          request_.rows[r]->host() + block.begin * DTypeBytes(request_.dtype);
    }
    UpdateBlock kernel;
    kernel.rows = rows;
    kernel.scales = ScalesOf(block, thread);
    kernel.coefficients =
        request_.ranges[block.range_index].coefficients.data();
    kernel.num_rows = static_cast<int64_t>(num_rows_);
    kernel.dtype = request_.dtype;
    kernel.formula = ChooseFormula(request_.optimizer);
    kernel.constants = constants_[block.range_index];
    kernel.num_elements = block.num_elements;
    kernel.combined = FloatsAt(request_.combined, block.begin);
    kernel.master = FloatsAt(request_.master, block.begin);
    kernel.state0 = FloatsAt(request_.state0, block.begin);
    kernel.state1 = FloatsAt(request_.state1, block.begin);
    kernel.snapshot = FloatsAt(request_.snapshot, block.begin);
    kernel.stream_snapshot = plan_.num_elements >= kStreamElements;
    if (request_.narrowed_snapshot != nullptr) {
      kernel.narrowed =
          reinterpret_cast<uint16_t*>(request_.narrowed_snapshot->host()) +
          block.begin;
      kernel.narrowed_dtype = request_.narrowed_dtype;
    }
    return kernel;
  }

  const UpdateRequest& request_;
  ThreadPool* const pool_;
  const size_t num_rows_;  // that are read
  BlockPlan plan_;
  std::vector<StepConstants> constants_;  // per range
  std::vector<const char*> row_pointers_;
  std::vector<const float*> scale_pointers_;  // of int8 rows
};

double Canonical(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

// Runs `step` on every block, and says whether all that it wrote is finite.
void StepBlocks(const UpdateRequest& request, Work work,
                bool (*step)(const UpdateBlock&), ThreadPool* pool) {
  UpdateRun run(request, work, pool);
  std::atomic<bool> all_finite{true};
  run.ForEachBlock([&](int64_t, const UpdateBlock& block) {
    if (!step(block)) all_finite = false;
  });
  if (request.all_finite != nullptr) *request.all_finite = all_finite;
}

}  // namespace

void ComputeUpdate(const UpdateRequest& request, ThreadPool* pool) {
  StepBlocks(request, Work::kUpdate, &ComputeUpdateBlock, pool);
}

void ComputeCombine(const UpdateRequest& request, ThreadPool* pool) {
  UpdateRun run(request, Work::kCombine, pool);
  run.ForEachBlock(
      [](int64_t, const UpdateBlock& block) { ComputeCombineBlock(block); });
}

void ComputeStep(const UpdateRequest& request, ThreadPool* pool) {
  StepBlocks(request, Work::kStep, &ComputeStepBlock, pool);
}

void ComputeNorms(const UpdateRequest& request, ThreadPool* pool,
                  absl::Span<RangeNorms> norms) {
  UpdateRun run(request, Work::kNorms, pool);
  std::vector<RangeNorms> partial(run.plan().blocks.size());
  run.ForEachBlock([&](int64_t index, const UpdateBlock& block) {
    partial[index] = ComputeNormsBlock(block);
  });
  for (RangeNorms& sum : norms) sum = RangeNorms();
  for (size_t b = 0; b < partial.size(); ++b) {
    RangeNorms& sum = norms[run.plan().blocks[b].range_index];
    sum.parameter_norm_squared += partial[b].parameter_norm_squared;
    sum.update_norm_squared += partial[b].update_norm_squared;
  }
  for (RangeNorms& sum : norms) {
    sum.parameter_norm_squared = Canonical(sum.parameter_norm_squared);
    sum.update_norm_squared = Canonical(sum.update_norm_squared);
  }
}

}  // namespace agg
