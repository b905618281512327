// The coordinator's view of one shard, itself included: the phases of a round
// as blocking calls on plain values. Implemented by ShardEngine directly and by
// server/rpc over gRPC.
#ifndef AGG_SERVER_ROUND_SHARD_PEER_H_
#define AGG_SERVER_ROUND_SHARD_PEER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/shard_plan.h"

namespace agg {

struct RoundRow {
  int32_t rank = 0;
  uint64_t session = 0;  // whose bytes count
};

struct SliceGram {
  int32_t slice = 0;
  std::vector<double> hi;  // packed upper triangle (kernels/backend.h)
  std::vector<double> lo;  // empty unless compensated
};

struct SliceNorms {
  int32_t slice = 0;
  double parameter_norm_squared = 0.0;
  double update_norm_squared = 0.0;
};

// Coefficients and scalars of one optimizer step.
struct StepPlan {
  bool per_tensor = false;
  // Segments x P, row-major; one segment unless per_tensor.
  std::vector<double> coefficients;
  std::vector<int32_t> excluded_ranks;  // rows left out of every sum
  double learning_rate = 0.0;
  int64_t step = 1;          // 1-based count of applied steps in the epoch
  std::vector<float> trust;  // per tensor; empty: 1
};

struct PublishPlan {
  uint64_t version = 0;
  bool unchanged = false;  // skipped round: the same bytes, the next number
  bool seed = false;       // version 0 from seed_session's landed slices
  uint64_t seed_session = 0;
};

enum class PhaseKind : uint8_t {
  kClose,
  kCompensatedGram,
  kNorms,
  kUpdate,
  kPublish,
  kAbandon
};

// One phase of one round. Idempotent by (epoch, round, kind): a repeat gives
// the same result and changes nothing.
struct Phase {
  PhaseKind kind = PhaseKind::kClose;
  uint64_t epoch = 0;
  uint64_t round = 0;
  std::vector<RoundRow> rows;    // kClose: W in rank order
  std::vector<int32_t> tensors;  // kCompensatedGram, ascending (kClose: all)
  StepPlan step;                 // kNorms, kUpdate
  PublishPlan publish;           // kPublish
};

struct PhaseResult {
  std::vector<SliceGram> grams;   // kClose, kCompensatedGram; ascending slice
  std::vector<SliceNorms> norms;  // kNorms; ascending slice
  double seconds = 0.0;           // compute time inside the shard
};

// A worker's session begins, changes role, or ends.
struct SessionChange {
  uint64_t session = 0;
  int32_t rank = 0;
  uint64_t replaces = 0;   // former session of the rank, 0: none
  bool keep_row = false;   // it has committed: its landed row stays
  bool remove = false;     // the session is over
  bool seed_role = false;  // its Seed is the one that counts
  // For the old one's calls: NOT_FOUND of remove, ABORTED of replaces and
  // evicted.
  std::string reason;
  bool evicted = false;  // removed by an operator
};

// Thread-safe; calls block until the shard has answered. Errors: UNAVAILABLE
// when the shard is gone, ABORTED for a stale epoch, FAILED_PRECONDITION
// (memory budget, another fingerprint), INTERNAL for compute errors.
class ShardPeer {
 public:
  virtual ~ShardPeer() = default;

  // Begins `epoch` on the shard, discarding older ones. `on_lost` is called at
  // most once, from any thread, when the shard is found to be gone; never
  // after the next Attach returned.
  virtual absl::Status Attach(uint64_t epoch,
                              std::function<void(absl::Status)> on_lost) = 0;
  // The epoch is over: every waiting and later call of a worker to the shard
  // gets `reason`, until the next Attach. Best effort.
  virtual void Lose(uint64_t epoch, const absl::Status& reason) = 0;
  virtual absl::Status SetManifest(uint64_t epoch,
                                   const Manifest& manifest) = 0;
  virtual absl::Status SetSession(uint64_t epoch,
                                  const SessionChange& change) = 0;
  virtual absl::StatusOr<PhaseResult> RunPhase(const Phase& phase) = 0;

  // "shard 1 (127.0.0.1:50052)", for messages.
  virtual std::string name() const = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_SHARD_PEER_H_
