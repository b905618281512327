// Rounds float32 gradients to the bytes of the wire (kernels/row_format.h).
// Apart from kernels/ because the client must not depend on a compute backend.
#ifndef AGG_WORKER_CLIENT_ROW_ENCODING_H_
#define AGG_WORKER_CLIENT_ROW_ENCODING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "server/base/mutex.h"
#include "worker_client/row_ledger.h"

namespace agg {

// What error feedback adds to a gradient before it is
// rounded, and where to put what rounding leaves out. Both empty: no feedback.
struct Residual {
  absl::Span<const float> before;
  absl::Span<float> after;
};

// Values that were finite and not zero, and are not so as sent. (What int8
// rounds to zero beside larger values of its block is no such loss.)
struct EncodingLoss {
  int64_t num_infinite = 0;
  int64_t num_vanished = 0;
};

// Writes `gradient` plus `residual.before` in `dtype`: PayloadBytes(dtype, ..)
// bytes at `to`. Always the same bytes for the same values.
//
// bf16, f16: rounded as kernels/narrow_float.h says.
// int8: of each block of scales the largest magnitude m gives the scale m /
// 127, rounded up to 16 bits, and an element is x * (1 / scale), rounded to
// nearest, ties to even. So values are float32 numbers, and what is left of x
// is exact. A block whose scale would be below 2^-126, float32's least normal
// number, is sent as zeros. One with an infinity or a NaN gets the scale NaN,
// and zeros. What is left in `residual.after` of values that are not finite is
// undefined.
//
// REQUIRES: dtype is not kF32; `to` and `elements` are aligned to 2 bytes; the
// residual is empty or as long as the gradient, and overlaps nothing.
EncodingLoss EncodeFloats(absl::Span<const float> gradient, DType dtype,
                          const Residual& residual, char* to);
// Writes the same to two places, as a slice lies in a row: `scales`, of int8
// alone, else null.
EncodingLoss EncodeFloats(absl::Span<const float> gradient, DType dtype,
                          const Residual& residual, char* scales,
                          char* elements);

// What rounding has left out of this worker's rows so far, to be added to the
// next one. Pure: no calls, no clock, no locks.
//
// Source: Seide et al., "1-Bit Stochastic Gradient Descent" (Interspeech 2014);
// Karimireddy et al., "Error Feedback Fixes SignSGD" (ICML 2019), algorithm 1:
//   sent = Q(gradient + residual)     residual' = gradient + residual - sent
//
// Rounds are exact about it. residual' becomes the residual when the row was
// included, and is dropped when it was not (late, not finite, lost), when its
// outcome never became known, or when another row takes its place: the residual
// is then what it was before, and nothing of that gradient is carried. So every
// attempt of a round starts from the same residual, and an attempt that is sent
// again has the same bytes (P27). When the job goes back, the residual is of a
// past that was given up, and becomes zero. Forget says so; a row of a round
// below the last included one's shows it, too, and so does one of the same
// round by another session. (By the same session it is a row that cannot
// count.)
//
// 8 bytes for each element. Thread-compatible: Begin and ResidualOf are called
// by who pushes, one push after the other. Settle and Forget only write down
// what Begin does later: the lock that is held for them and for Begin is all
// that they need, while another thread pushes.
class ErrorFeedback {
 public:
  // Takes the number of elements of each tensor. All residuals are zero.
  explicit ErrorFeedback(const std::vector<int64_t>& num_elements);

  // Begins `row`: the rows to come are this one, until the next call.
  void Begin(const RowName& row);
  // Returns the residuals of elements [begin, begin + num_elements) of a
  // tensor, to encode them with; any number of times. A tensor that is not
  // asked for is not in the row: its residual stays. Valid until Begin.
  Residual ResidualOf(int32_t tensor, int64_t begin, int64_t num_elements);

  // Notes the outcome of `row`, unless another row has begun since: of former
  // rows nothing is known any more. The first outcome counts.
  void Settle(const RowName& row, bool included);
  // Says that the job has gone back: all residuals become zero.
  void Forget();

 private:
  struct Tensor {
    std::vector<float> before;
    std::vector<float> after;
    bool sent = false;  // `after` is of row_
  };
  enum class Fate { kUnknown, kIncluded, kDropped };

  std::vector<Tensor> tensors_;
  RowName row_;
  Fate fate_ = Fate::kUnknown;  // of row_
  bool forgotten_ = false;
  uint64_t next_round_ = 0;        // above the last one that the residual is of
  uint64_t included_session_ = 0;  // of that one's row; 0: there is none
};

// Makes the feedback for a worker's rows in a job of that push dtype: null if
// they are not rounded, or `wanted` is false. `wanted` is nothing: it is wanted
// for int8 alone.
std::unique_ptr<ErrorFeedback> MakeErrorFeedback(const Manifest& manifest,
                                                 DType push_dtype,
                                                 absl::optional<bool> wanted);

// Counts what rounding a row to the job's push_dtype loses. These are the
// losses of one row, whose slices may be rounded again (for a retry, or by
// another way): each slice counts once. Thread-safe.
class EncodingTally {
 public:
  // What a whole slice of the plan has lost.
  void Set(int32_t slice, int tensor, const EncodingLoss& loss);

  // Returns a sentence that names the first tensor and says what to do; "":
  // nothing was lost that is worth it. Values that vanish are worth it if they
  // are more than a thousandth of all elements.
  std::string Describe(const Manifest& manifest, DType dtype) const;

 private:
  struct Lost {
    int tensor;
    EncodingLoss loss;
  };
  mutable Mutex mutex_;
  // Slices that have lost something.
  std::map<int32_t, Lost> lost_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROW_ENCODING_H_
