// The compute interface of a shard: primitives over gradient rows.
//
// A shard lays its slices out one behind the other; a row, the master weights,
// each optimizer state array and each snapshot are Buffers with that same
// layout, so that one element range names the same slice in all of them. (A row
// of int8 has its scales behind its elements: row_format.h.)
// Every primitive is blocking: on return its results are visible to the host.
#ifndef AGG_KERNELS_BACKEND_H_
#define AGG_KERNELS_BACKEND_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/buffer.h"
#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"

namespace agg {

// Doubles of the packed upper triangle of a P x P Gram matrix, diagonal
// included, row by row: (0,0) (0,1) .. (0,P-1) (1,1) ..
constexpr int64_t PackedGramSize(int64_t num_rows) {
  return num_rows * (num_rows + 1) / 2;
}

// Gram matrices of `ranges`, of the rows' elements as they are (no scaling).
// A non-finite element makes its row's diagonal entry non-finite. The bits of
// an entry depend on the rows, the dtype and its own range alone, not on the
// other ranges of the request: a caller may ask for ranges in any groups.
struct GramRequest {
  absl::Span<const Buffer* const> rows;  // P >= 1 rows, in rank order
  DType dtype = DType::kF32;
  absl::Span<const ElementRange> ranges;
  // Compensated: pairs hi + lo accumulated with two-sum (about 106 bits;
  // server/combine/README.md 3.5); `lo` is then filled as `hi` is.
  bool compensated = false;
  absl::Span<double> hi;  // ranges.size() * PackedGramSize(P)
  absl::Span<double> lo;  // empty unless compensated
};

// One slice's share of an Update: what its tensor and group say.
struct UpdateRange {
  ElementRange range;
  absl::Span<const double> coefficients;  // P, in the rows' order
  float learning_rate = 0.0f;  // group factor and step scale included
  float weight_decay = 0.0f;
  float trust = 1.0f;  // lars, lamb: the tensor's trust ratio, else 1
};

// combined = float(sum_i coefficients[i] * double(row_i)), rows in order; then
// the optimizer step on `master`, then float32 and narrowed copies published.
struct UpdateRequest {
  absl::Span<const Buffer* const> rows;
  DType dtype = DType::kF32;
  OptimizerOptions optimizer;
  int64_t step = 1;  // 1-based count of applied steps (bias correction)
  absl::Span<const UpdateRange> ranges;
  Buffer* master = nullptr;
  Buffer* state0 = nullptr;    // momentum, first moment or accumulator, or null
  Buffer* state1 = nullptr;    // second moment, or null
  Buffer* snapshot = nullptr;  // float32, always written
  Buffer* narrowed_snapshot = nullptr;  // null when nothing is narrowed
  DType narrowed_dtype = DType::kF32;
  // Set to whether every parameter that was written is finite, as narrowed,
  // too; null: not asked.
  bool* all_finite = nullptr;
  // If this is not null, the call may return while the bytes of the float32
  // snapshot are on their way, and then sets it to true (it never sets it to
  // false). FinishSnapshot must be called then.
  bool* snapshot_deferred = nullptr;
  // Used with snapshot_deferred only. True: those bytes are not copied before
  // FinishSnapshot asks for them, which need not be called. They are lost when
  // the master is written again.
  bool snapshot_on_demand = false;
  // Combine and Step alone: the combined gradient, float32, a kSnapshot buffer
  // in the rows' layout. Combine writes it, on the host; Step reads it there.
  Buffer* combined = nullptr;
};

// Partial squared norms of one range, summed in double in a fixed order.
struct RangeNorms {
  double parameter_norm_squared = 0.0;
  // What the trust ratio divides by: for lars the combined gradient, for lamb
  // the bias-corrected Adam direction plus weight decay times the weights.
  double update_norm_squared = 0.0;
};

// Thread-compatible (FinishSnapshot aside): one call of Load, Read, Write,
// Gram, Update, Combine, Step or Norms at a time; other calls, and the ends of
// buffers that none of these uses, may come beside it from any thread. Results
// have the same bits for every thread count and SIMD target (CPU), and from run
// to run (CUDA).
//
// Errors: INVALID_ARGUMENT for requests that do not fit together,
// RESOURCE_EXHAUSTED, INTERNAL when a call failed but another may work, and
// UNAVAILABLE when the device is lost: no later call will work.
class Backend {
 public:
  virtual ~Backend() = default;

  // Returns "cpu" or "cuda"; description() returns a line for the log: device,
  // threads, SIMD target.
  virtual absl::string_view name() const = 0;
  virtual std::string description() const = 0;

  // Returns what computing needs when there are `num_rows` kRow buffers.
  // Thread-safe, as is device_memory_use.
  virtual MemoryNeeds memory_needs(int64_t num_rows) const = 0;
  virtual DeviceMemoryUse device_memory_use() const = 0;
  // Returns how many multiplications of a Gram may go into one call while
  // others wait for its end: some tenths of a second of a CPU.
  virtual double gram_products_at_once() const { return 4e9; }

  // Allocates a buffer. RESOURCE_EXHAUSTED, with the sizes, when there is no
  // such memory.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(
      BufferUse use, int64_t num_bytes) = 0;

  // Returns a kRow or kSnapshot buffer whose host side is memory of the caller,
  // which begins at a page, is filled as it likes, and outlives the buffer:
  // memory that other processes map. A device copies from and to it as from and
  // to the memory of Allocate. If it cannot (a limit of locked memory),
  // *registered says why, and copies go by way of the driver's staging memory:
  // slower, with the same bytes. Errors as of Allocate. Thread-safe.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Adopt(
      BufferUse use, char* host, int64_t num_bytes,
      absl::Status* registered) = 0;

  // Says that the host has written `range` of a kRow buffer and will not again
  // before the next round: a device backend starts its copy. Thread-safe.
  virtual void RowLanded(const Buffer& row, DType dtype,
                         const ElementRange& range) = 0;

  // Returns when what has landed in kRow buffers is on the device: from here on
  // another process may write a row's device side. Thread-safe.
  virtual absl::Status AwaitRows() { return absl::OkStatus(); }

  // Copies a float32 snapshot buffer into `master` (the seed), clears the
  // state buffers (the first one to InitialState0) and fills the narrowed
  // copy if there is one.
  virtual absl::Status Load(const OptimizerOptions& optimizer,
                            const Buffer& snapshot, Buffer* master,
                            Buffer* state0, Buffer* state1,
                            Buffer* narrowed_snapshot,
                            DType narrowed_dtype) = 0;

  // Copies a kState buffer to the host, and back, with all bits: for
  // checkpoints. `values` has one for every 4 bytes of the buffer.
  virtual absl::Status Read(const Buffer& state, absl::Span<float> values) = 0;
  virtual absl::Status Write(absl::Span<const float> values, Buffer* state) = 0;

  virtual absl::Status Gram(const GramRequest& request) = 0;
  virtual absl::Status Update(const UpdateRequest& request) = 0;

  // Update in two halves, with its bits (a NaN's payload excepted). Combine
  // reads rows, dtype, ranges and coefficients, writes the combined gradient of
  // the ranges and touches nothing else. Step reads neither rows nor
  // coefficients, takes the combined gradient as it is (a sum from zero would
  // lose the sign of -0), and writes what Update writes. Its snapshot may be
  // null if narrowed_snapshot is, too. Ranges may come in any groups.
  virtual absl::Status Combine(const UpdateRequest& request) = 0;
  virtual absl::Status Step(const UpdateRequest& request) = 0;

  // Waits for the bytes of a float32 snapshot that Update or Step has deferred;
  // nothing to wait for is OK. Before it has returned nobody reads or writes
  // them, and the snapshot and the master that it shows stay. That master may
  // be written meanwhile: what writes it waits by itself. After an error, which
  // says nothing about the narrowed snapshot or the master, another call copies
  // again; FAILED_PRECONDITION: that cannot be done any more, since the master
  // has changed. Thread-safe, and beside any other call.
  virtual absl::Status FinishSnapshot(const Buffer& snapshot) = 0;

  // Combines and steps as Update would, storing nothing; `norms` has one
  // entry per range. trust is taken as 1.
  virtual absl::Status Norms(const UpdateRequest& request,
                             absl::Span<RangeNorms> norms) = 0;
};

}  // namespace agg

#endif  // AGG_KERNELS_BACKEND_H_
