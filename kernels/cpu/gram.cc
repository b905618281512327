// Gives units of blocks to threads, keeps each block's result, and adds
// results in the order of the blocks: so the bits do not depend on the
// threads.
#include "kernels/cpu/gram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "kernels/cpu/block_plan.h"
#include "kernels/cpu/gram_kernel.h"
#include "kernels/double_pair.h"
#include "kernels/row_format.h"

namespace agg {
namespace {

// Units computed before their results are added up: bounds the memory of
// block results (4 MiB at P = 32) at one barrier per 64 Mi elements.
constexpr int64_t kWaveUnits = 1024;

// Row elements below which waking threads costs more than it brings.
constexpr int64_t kInlineRowElements = int64_t{64} << 10;

// `num_doubles` doubles per thread, 64-byte aligned and each thread's a page
// away from the next one's, not initialised.
class ThreadScratch {
 public:
  ThreadScratch(int num_threads, int64_t num_doubles)
      : stride_((num_doubles + kPageDoubles - 1) / kPageDoubles * kPageDoubles),
        data_(static_cast<double*>(
            ::operator new (num_threads* stride_ * sizeof(double),
                            std::align_val_t{kPageBytes}))) {}

  double* of_thread(int thread) const { return data_.get() + thread * stride_; }

 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr int64_t kPageDoubles = kPageBytes / sizeof(double);

  struct Free {
    void operator()(double* data) const {
      ::operator delete (data, std::align_val_t{kPageBytes});
    }
  };

  int64_t stride_;
  std::unique_ptr<double, Free> data_;
};

class GramRun {
 public:
  GramRun(const GramRequest& request, ThreadPool* pool)
      : request_(request),
        pool_(pool),
        num_rows_(static_cast<int64_t>(request.rows.size())),
        num_pairs_(PackedGramSize(num_rows_)),
        plan_(PlanBlocks(request.ranges)),
        scratch_(pool->num_threads(), GramScratchDoubles(num_rows_)),
        row_pointers_(num_rows_ * pool->num_threads()),
        scale_pointers_(request.dtype == DType::kI8 ? row_pointers_.size()
                                                    : 0) {}

  void Run() {
    std::fill(request_.hi.begin(), request_.hi.end(), 0.0);
    std::fill(request_.lo.begin(), request_.lo.end(), 0.0);
    const bool wake = plan_.num_elements * num_rows_ > kInlineRowElements;
    for (int64_t unit = 0; unit < plan_.num_units(); unit += kWaveUnits) {
      const int64_t num_units = std::min(kWaveUnits, plan_.num_units() - unit);
      first_block_ = plan_.unit_begins[unit];
      const int64_t end_block = plan_.unit_begins[unit + num_units];
      const int64_t num_doubles = (end_block - first_block_) * num_pairs_;
      block_hi_.resize(num_doubles);
      if (request_.compensated) block_lo_.resize(num_doubles);
      pool_->ForEach(num_units, wake, [this, unit](int64_t u, int thread) {
        for (int64_t block = plan_.unit_begins[unit + u];
             block < plan_.unit_begins[unit + u + 1]; ++block) {
          ComputeBlock(block, thread);
        }
      });
      for (int64_t block = first_block_; block < end_block; ++block) {
        AddBlock(block);
      }
    }
    Canonicalize(request_.hi);
    Canonicalize(request_.lo);
  }

 private:
  void ComputeBlock(int64_t block_index, int thread) {
    const Block& block = plan_.blocks[block_index];
    const char** const rows = row_pointers_.data() + thread * num_rows_;
    for (int64_t r = 0; r < num_rows_; ++r) {
      rows[r] =
          request_.rows[r]->host() + block.begin * DTypeBytes(request_.dtype);
    }
    const int64_t at = (block_index - first_block_) * num_pairs_;
    if (request_.dtype == DType::kI8) {
      ComputeInt8Block(block, rows, at, thread);
      return;
    }
    GramBlock kernel;
    kernel.rows = rows;
    kernel.num_rows = num_rows_;
    kernel.dtype = request_.dtype;
    kernel.num_elements = block.num_elements;
    kernel.hi = block_hi_.data() + at;
    kernel.lo = request_.compensated ? block_lo_.data() + at : nullptr;
    kernel.scratch = scratch_.of_thread(thread);
    ComputeGramBlock(kernel);
  }

  // `at`: where the block's results go.
  void ComputeInt8Block(const Block& block, const char* const* rows, int64_t at,
                        int thread) {
    const float** const scales = scale_pointers_.data() + thread * num_rows_;
    for (int64_t r = 0; r < num_rows_; ++r) {
      scales[r] = ScalesAt(*request_.rows[r], block.begin);
    }
    Int8GramBlock kernel;
    kernel.rows = rows;
    kernel.scales = scales;
    kernel.num_rows = num_rows_;
    kernel.num_elements = block.num_elements;
    kernel.hi = block_hi_.data() + at;
    kernel.lo = request_.compensated ? block_lo_.data() + at : nullptr;
    ComputeInt8GramBlock(kernel);
  }

  void AddBlock(int64_t block_index) {
    const int64_t from = (block_index - first_block_) * num_pairs_;
    const int64_t to = plan_.blocks[block_index].range_index * num_pairs_;
    for (int64_t pair = 0; pair < num_pairs_; ++pair) {
      double& hi = request_.hi[to + pair];
      if (!request_.compensated) {
        hi += block_hi_[from + pair];
        continue;
      }
      double& lo = request_.lo[to + pair];
      const DoublePair sum =
          PairAdd(DoublePair{hi, lo},
                  DoublePair{block_hi_[from + pair], block_lo_[from + pair]});
      hi = sum.hi;
      lo = sum.lo;
    }
  }

  // Which of two NaNs an addition returns is up to the compiler.
  static void Canonicalize(absl::Span<double> values) {
    for (double& value : values) {
      if (std::isnan(value)) value = std::numeric_limits<double>::quiet_NaN();
    }
  }

  const GramRequest& request_;
  ThreadPool* const pool_;
  const int64_t num_rows_;
  const int64_t num_pairs_;
  const BlockPlan plan_;
  ThreadScratch scratch_;
  std::vector<const char*> row_pointers_;
  std::vector<const float*> scale_pointers_;  // of int8 rows
  int64_t first_block_ = 0;                   // of the wave
  std::vector<double> block_hi_;
  std::vector<double> block_lo_;
};

}  // namespace

void ComputeGram(const GramRequest& request, ThreadPool* pool) {
  GramRun(request, pool).Run();
}

}  // namespace agg
