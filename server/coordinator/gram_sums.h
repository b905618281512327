// The Gram matrices of a round's tensors, summed over their slices as these
// arrive from the shards.
#ifndef AGG_SERVER_COORDINATOR_GRAM_SUMS_H_
#define AGG_SERVER_COORDINATOR_GRAM_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "kernels/optimizer_step.h"
#include "proto/shard_plan.h"
#include "server/base/mutex.h"
#include "server/combine/gram_matrix.h"
#include "server/round/phase.h"

namespace agg {

// Layer-wise trust ratios of LARS and LAMB from summed squared norms.

// Squared norms of one tensor, summed over its slices in manifest order.
struct TensorNorms {
  double parameter_norm_squared = 0.0;
  double update_norm_squared = 0.0;  // kernels/backend.h, RangeNorms
};

// lars (You, Gitman, Ginsburg 2017, eq. 6):
//   trust_coefficient * ||w|| / (||g|| + weight_decay * ||w|| + epsilon)
// lamb (You et al. 2020, algorithm 2, phi the identity): ||w|| / ||u||.
// 1 where ||w|| or the other norm is 0 (both papers' reference code), so that
// zero-initialised tensors learn; 1 for other optimizers.
float TrustRatio(const OptimizerOptions& optimizer, double weight_decay,
                 const TensorNorms& norms);

// A tensor's slices are added in their order, whatever shard they come from and
// whenever (P8): the sum has the same bits for any number of shards. One that
// comes before its turn waits; else nothing is kept but the sums. Thread-safe.
class GramSums {
 public:
  // Sums the Grams of `tensors` (ascending) of the plan, which outlives it;
  // each is num_rows square.
  GramSums(const ShardPlan& plan, const std::vector<int32_t>& tensors,
           int num_rows, bool compensated);

  // Ignores what was not asked for, what has another size and what has come
  // before.
  void Add(SliceGram gram);

  // The sums, as the tensors were given; zeros for one without elements.
  // INTERNAL naming a slice that has not come. To be called once.
  absl::StatusOr<std::vector<GramMatrix>> Take();

 private:
  struct Sum {
    GramMatrix gram;
    size_t num_added = 0;  // of the tensor's slices
    std::map<int32_t, SliceGram> early;
  };

  bool Fits(const SliceGram& gram) const;
  void AddNext(SliceGram gram, Sum* sum) const;

  const ShardPlan& plan_;
  const std::vector<int32_t> tensors_;
  const int num_rows_;
  const bool compensated_;
  Mutex mutex_;
  std::vector<Sum> sums_ ABSL_GUARDED_BY(mutex_);  // as tensors_
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_GRAM_SUMS_H_
