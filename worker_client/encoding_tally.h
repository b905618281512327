// Counts what rounding a row to the job's push_dtype loses.
#ifndef AGG_WORKER_CLIENT_ENCODING_TALLY_H_
#define AGG_WORKER_CLIENT_ENCODING_TALLY_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "server/base/mutex.h"
#include "worker_client/row_encoding.h"

namespace agg {

// The losses of one row, whose slices may be rounded again (for a retry, or by
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

#endif  // AGG_WORKER_CLIENT_ENCODING_TALLY_H_
