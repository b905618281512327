// What the coordinator is configured with, asked and answers: plain values.
#ifndef AGG_SERVER_COORDINATOR_COORDINATOR_TYPES_H_
#define AGG_SERVER_COORDINATOR_COORDINATOR_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/optimizer_step.h"
#include "proto/shard_plan.h"
#include "server/combine/options.h"
#include "server/combine/row_info.h"
#include "server/ingest/frame.h"
#include "server/round/combination_names.h"

namespace agg {

// Of one job; proto/config.proto says what each means.
struct CoordinatorOptions {
  std::string job = "default";
  int32_t workers = 1;
  int32_t min_workers = 1;
  int32_t max_workers = 1;
  absl::Duration start_timeout = absl::ZeroDuration();  // 0: never early
  absl::Duration lease = absl::Seconds(30);
  absl::Duration reconnect_grace = absl::Seconds(5);
  absl::Duration round_timeout = absl::ZeroDuration();  // 0: off
  absl::Duration straggler_warning = absl::Seconds(60);
  uint64_t max_rounds = 0;  // 0: no end
  CombineOptions combine;
  OptimizerOptions optimizer;
  float weight_decay = 0.0f;
  std::vector<std::pair<std::string, float>> group_weight_decay;
};

// A worker that wants in (P3).
struct JoinCall {
  int32_t rank = 0;
  Manifest manifest;
  std::string client;
};

// What Join and Observe tell (JoinReply of proto/agg.proto, less config).
struct JoinResult {
  uint64_t session = 0;
  uint64_t epoch = 0;
  uint64_t version = 0;
  bool seeded = false;
  bool seed_role = false;
  uint64_t first_round = 0;
  bool committed = false;
  bool finished = false;
  Manifest manifest;
  CombinationNames combination;  // of the first round, or the open one
};

// A worker's word that its row (or the seed) is complete on all shards (P6).
struct CommitCall {
  uint64_t epoch = 0;
  uint64_t session = 0;
  uint64_t round = 0;
  PushKind kind = PushKind::kGradient;
  RowInfo row;  // rank is filled in by the coordinator
  std::optional<double> loss;
  std::string traceparent;  // well-formed (proto/traceparent.h) or ""
  // What is known against it (ShardPeer::CheckPushed); filled in by the
  // coordinator.
  absl::Status pushed;
};

enum class OutcomeKind : uint8_t { kApplied, kSkipped, kSeeded };

// What a round came to, for one asker.
struct RoundResult {
  uint64_t epoch = 0;
  uint64_t round = 0;
  uint64_t version = 0;
  OutcomeKind kind = OutcomeKind::kApplied;
  bool included = false;
  std::vector<int32_t> ranks;
  std::vector<int32_t> excluded_ranks;  // not finite, or incomplete
  double learning_rate = 0.0;
  double gain = 1.0;
  double tau = 0.0;
  double orthogonality = 0.0;
  bool finished = false;
  std::string message;
  double loss = 0.0;
  double combined_norm = 0.0;
  CombinationNames combination;  // in effect in the round
};

// A round that has ended, for people.
struct RoundRecord {
  RoundResult outcome;
  absl::Time ended_at;
  absl::Duration wait;  // for workers
  absl::Duration work;  // all other phases
};

// Whose session an operator has ended.
struct Eviction {
  uint64_t session = 0;
  std::string client;
  bool committed = false;  // its row stays in the open round
};

enum class JobEventKind : uint8_t {
  kShardLost,
  kFinished,
  kSuperseded,
  kSeedRole,
  kDraining,
  kExpired,
  kEvicted
};
// Something that every (or one) worker is told at once.
struct JobEvent {
  JobEventKind kind = JobEventKind::kFinished;
  uint64_t version = 0;
  std::string message;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_COORDINATOR_TYPES_H_
