// Plain types of the public client: for code that need not know agg_client.h.
#ifndef AGG_WORKER_CLIENT_CLIENT_TYPES_H_
#define AGG_WORKER_CLIENT_CLIENT_TYPES_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/dtype.h"
#include "proto/shard_plan.h"

namespace agg {

// What the job sends to all its clients at once.
struct ClientEvent {
  enum class Kind {
    kShardLost,   // every call fails with UNAVAILABLE from now on
    kFinished,    // no more rounds; pulls still work
    kSuperseded,  // another session took the rank: every call is ABORTED
    kSeedRole,    // this worker is now the one to Seed
    kDraining,    // the server is shutting down
    kExpired,     // the lease ran out: NOT_FOUND; Connect again to go on
    kEvicted,     // an operator ended this session: every call is ABORTED
  };
  Kind kind = Kind::kFinished;
  uint64_t version = 0;
  std::string message;
};

struct ClientOptions {
  std::string coordinator = "127.0.0.1:50051";  // shard 0, "host:port"
  int rank = 0;           // 0..max_workers-1, unique among the job's workers
  bool observer = false;  // pulls only: no lease; rank, manifest are ignored
  // What this worker pushes. The first worker's manifest becomes the job's.
  Manifest manifest;
  std::string client_name;  // for the server's log; empty: "host:pid"

  // --- Limits. All calls also end when the job or this session does. ---
  // Until the coordinator answers and lets this worker in.
  absl::Duration connect_timeout = absl::Seconds(30);
  // Short calls that wait for no other worker (Leave, Observe).
  absl::Duration call_timeout = absl::Seconds(10);
  // A complete Push, or Pull of a published version.
  absl::Duration transfer_timeout = absl::Minutes(10);
  // Calls that wait for other workers: Commit, Wait, Pull of a later version.
  absl::Duration round_timeout = absl::InfiniteDuration();
  // For how long a broken connection is tried again. Less than the server's
  // reconnect_grace (5 s): after that the session is over anyway.
  absl::Duration reconnect_window = absl::Seconds(3);

  // --- Performance ---
  // TCP connections to each shard, 1 or 2: with 2, pulls can overlap pushes.
  int channels_per_shard = 1;
  // Lets glibc keep freed memory (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD,
  // M_TOP_PAD), which about doubles pull throughput. Off by default because it
  // changes the complete process; MALLOC_* in the environment has precedence.
  bool tune_malloc = false;

  // Called on the client's thread; must not block, and must not call the
  // client.
  std::function<void(const ClientEvent&)> on_event;
};

// How the job is set up, as the server said at Connect.
struct JobDescription {
  std::string job;                  // its name
  std::string rule;                 // in effect: "adasum"
  std::string scope;                // "per_tensor" or "global"
  std::string step_scale;           // "none", "adascale"
  int workers = 0;                  // expected
  std::vector<std::string> shards;  // addresses by ordinal
  DType push_dtype = DType::kF32;
  DType pull_dtype = DType::kF32;
};

// How pulled parameters travel; they always arrive as float32.
enum class Precision {
  kJob,   // sent in the job's pull_dtype and widened
  kFull,  // sent in float32
};

// What comes with a worker's row.
struct PushInfo {
  int64_t examples = 1;
  int accumulation = 1;  // micro-batches that the row is the mean of
  // Sum over micro-gradients of ||g||^2, in units of the pushed row.
  absl::optional<double> micro_norm_squared_sum;
  absl::optional<double> loss;  // mean over the row's examples
  double loss_scale = 1;        // the row is this times the gradient
  // W3C traceparent, for the server's trace of the round; malformed: not sent.
  std::string traceparent;
};

// How a round ended.
struct RoundOutcome {
  enum class Kind { kApplied, kSkipped, kSeeded };
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  uint64_t round = 0;
  uint64_t version = 0;  // published by the round
  Kind kind = Kind::kApplied;
  bool included = false;            // this worker's row is in the result
  std::vector<int> ranks;           // of the workers whose rows are in it
  std::vector<int> excluded_ranks;  // not finite, or not completely pushed
  double learning_rate = 0;         // as applied
  double gain = 1;                  // factor of the step scale
  double tau = 0;                   // scale-invariant iterations so far
  double orthogonality = kNaN;      // NaN: undefined
  double loss = kNaN;               // mean by examples; NaN: nobody sent one
  double combined_norm = kNaN;
  bool finished = false;  // no round follows
  std::string message;    // why skipped, which fallback
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CLIENT_TYPES_H_
