// What a shard is configured with. In this room because the configuration
// writes these options and the shard reads them, and neither may use the other.
#ifndef AGG_SERVER_ROUND_SHARD_OPTIONS_H_
#define AGG_SERVER_ROUND_SHARD_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "kernels/optimizer_step.h"

namespace agg {

// Hyperparameters of one tensor group.
struct GroupOptions {
  std::string name;
  float learning_rate_factor = 1.0f;
  float weight_decay = 0.0f;
  int32_t place = 0;  // in StepPlan::group_rates; 0: of tensors in no group
};

// What a shard may allocate, in bytes. 0: unlimited.
struct MemoryBudget {
  int64_t host_bytes = 0;
  int64_t device_bytes = 0;
};

struct ShardOptions {
  int32_t ordinal = 0;
  int32_t num_shards = 1;
  uint64_t life = 0;        // random bits of the process; 0: not known
  int32_t workers = 1;      // expected in round 0
  int32_t max_workers = 1;  // ranks are 0 to max_workers - 1
  DType push_dtype = DType::kF32;
  DType pull_dtype = DType::kF32;
  OptimizerOptions optimizer;
  float weight_decay = 0.0f;  // for tensors that are in no group
  std::vector<GroupOptions> groups;
  MemoryBudget memory_budget;
  // Each part has a copy in two processes (P15).
  bool replicated = false;
  // A version is published before a device has copied all of its float32 bytes.
  // With replication: sends while it combines, and steps its replica between
  // two phases. false: all within phases, with the same bits and no thread.
  bool background = true;
  // A copy of the arrays is kept for checkpoints. Set by ShardEngine.
  bool checkpoints = false;
  // Compute a slice's Gram as soon as its rows are complete; the results are
  // the same.
  bool early_gram = true;
  // Number of elements on this shard below which no Gram is computed early:
  // waking a thread takes longer than the Grams do, and the close waits for it.
  int64_t min_early_elements = 0;
  // Rows and versions are in shared memory where the backend has them on the
  // host: workers of this host may write and read them there (P39, P40).
  bool shared_memory = false;
  // No round closes before all members' rows are there: rows are reported
  // together (P44).
  bool reports_together = false;
  // Rounds go wave by wave (P43). REQUIRES: !replicated, !early_gram.
  bool pipelined = false;
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_SHARD_OPTIONS_H_
