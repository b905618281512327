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
#ifndef AGG_WORKER_CLIENT_ERROR_FEEDBACK_H_
#define AGG_WORKER_CLIENT_ERROR_FEEDBACK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/optional.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "worker_client/row_custody.h"
#include "worker_client/row_encoding.h"

namespace agg {

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

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ERROR_FEEDBACK_H_
