// Counts what rounding a row to the job's push_dtype loses.
#ifndef AGG_WORKER_CLIENT_ENCODING_TALLY_H_
#define AGG_WORKER_CLIENT_ENCODING_TALLY_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "kernels/dtype.h"
#include "proto/shard_plan.h"
#include "worker_client/row_encoding.h"

namespace agg {

// Of one row. Thread-safe.
class EncodingTally {
 public:
  void Add(int tensor, const EncodingLoss& loss);

  // A sentence that names the first tensor and says what to do; "": nothing was
  // lost that is worth it. Of what vanishes, more than a thousandth of all
  // elements is.
  std::string Describe(const Manifest& manifest, DType dtype) const;

 private:
  std::atomic<int64_t> num_infinite_{0};
  std::atomic<int64_t> num_vanished_{0};
  std::atomic<int> first_infinite_{-1};  // tensor; -1: none
  std::atomic<int> first_vanished_{-1};
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ENCODING_TALLY_H_
