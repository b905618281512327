// The parameters that a worker computes on, and what they are worth in another
// epoch of its job.
#ifndef AGG_WORKER_CLIENT_HELD_VERSION_H_
#define AGG_WORKER_CLIENT_HELD_VERSION_H_

#include <cstdint>

namespace agg {

// Whether a worker's parameters are still good in an epoch.
enum class Standing {
  kGood,
  kRewound,     // they are of a past that was given up
  kNewSession,  // good, but its session had ended: it has joined again
  kUnseeded,    // the job has none any more
};

// The parameters that a worker computes on.
struct HeldVersion {
  bool any = false;  // seeded, or pulled one
  uint64_t version = 0;
  uint64_t made = 0;     // by which epoch; 0: not known
  uint64_t session = 0;  // that had them
  uint64_t view = 0;     // the serial number of the view they came with
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_HELD_VERSION_H_
