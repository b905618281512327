// What the coordinator is configured with, what it is asked and what it
// answers: plain values.
#ifndef AGG_SERVER_COORDINATOR_COORDINATOR_TYPES_H_
#define AGG_SERVER_COORDINATOR_COORDINATOR_TYPES_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/optimizer_step.h"
#include "proto/shard_plan.h"
#include "proto/shared_manifest.h"
#include "proto/wave_plan.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/coordinator/close_policy.h"
#include "server/ingest/frame.h"
#include "server/round/combination_names.h"
#include "server/round/recovery.h"

namespace agg {

enum class OutcomeKind : uint8_t { kApplied, kSkipped, kSeeded };

// What a round came to: for a session that asks (RoundOutcome of
// proto/agg.proto), for the job's record, and for people.
struct RoundResult {
  uint64_t epoch = 0;
  uint64_t round = 0;
  uint64_t version = 0;  // published by the round
  OutcomeKind kind = OutcomeKind::kApplied;
  bool included = false;       // whether the row asked for was used
  std::vector<int32_t> ranks;  // rows that the result contains
  // Sessions whose rows it contains, ascending, with their attempts.
  std::vector<std::pair<uint64_t, uint32_t>> attempts;
  // Not finite, incomplete, or outliers that are left out.
  std::vector<int32_t> excluded_ranks;
  double learning_rate = 0.0;
  double gain = 1.0;
  double tau = 0.0;
  double orthogonality = 0.0;
  bool finished = false;  // the job is over
  std::string message;
  double loss = 0.0;
  double combined_norm = 0.0;
  CombinationNames combination;  // in effect in the round
  // Places in the manifest of what no row of `ranks` had; ascending.
  std::vector<int32_t> absent_tensors;
  std::vector<int32_t> differing_ranks;  // of ReplicaGroups
  // Not in the record:
  absl::Time ended_at;
  absl::Duration wait;  // for workers
  absl::Duration work;  // all other phases

  // Whether that row of a session is in it.
  bool Contains(uint64_t session, uint32_t attempt) const {
    return std::find(attempts.begin(), attempts.end(),
                     std::make_pair(session, attempt)) != attempts.end();
  }
};

// The last row of a rank that a version contains.
struct UsedRow {
  uint64_t session = 0;
  uint64_t round = 0;
  uint32_t attempt = 0;
};

// A question for an outcome. A session that seeds asks for its seed's.
struct OutcomeQuery {
  PushKind kind = PushKind::kGradient;
  uint64_t round = 0;    // of a gradient
  uint64_t session = 0;  // 0: an observer
  uint32_t attempt = 0;  // whose row `included` tells about
};

// Nothing: not known yet, so the asker waits.
using OutcomeAnswer = absl::StatusOr<std::optional<RoundResult>>;
inline bool IsPending(const OutcomeAnswer& answer) {
  return answer.ok() && !answer->has_value();
}

// When a job's state is copied to disk, and what becomes of the copies.
struct CheckpointOptions {
  bool enabled = false;                         // a path is configured
  absl::Duration every = absl::ZeroDuration();  // 0: not by time
  uint64_t every_rounds = 0;                    // 0: not by rounds
  int keep = 3;
  bool restore = true;      // a job that starts goes on from the newest one
  std::string restore_job;  // whose it begins with where it has none; "": none
  std::string config_text;  // kept in each checkpoint, for people
};

// The job's part of the configuration; proto/config.proto says what each field
// means.
struct CoordinatorOptions {
  std::string job = "default";
  int32_t workers = 1;
  int32_t min_workers = 1;
  int32_t max_workers = 1;
  absl::Duration start_timeout = absl::ZeroDuration();  // 0: never early
  absl::Duration lease = absl::Seconds(30);
  absl::Duration reconnect_grace = absl::Seconds(5);
  int32_t quorum = 0;                                    // 0: all members
  absl::Duration round_timeout = absl::ZeroDuration();   // 0: off
  double round_timeout_mad = 0.0;                        // 0: off
  absl::Duration start_warning = absl::Seconds(5);       // 0: off
  absl::Duration straggler_warning = absl::Seconds(60);  // 0: off
  absl::Duration phase_timeout = absl::Minutes(10);      // of one shard
  FloorPolicy floor_policy = FloorPolicy::kWait;
  absl::Duration floor_timeout = absl::ZeroDuration();  // with kFail
  uint64_t max_skipped_rounds = 100;                    // in a row; 0: no end
  bool fail_on_divergence = false;  // when replicas differ (P49)
  uint64_t max_rounds = 0;          // 0: no end
  bool replicated = false;          // parts have copies at buddies
  bool pipelined = false;           // rounds are published wave by wave (P43)
  // Reports of versions that are a multiple of this have TensorGrams; 0: none.
  uint64_t tensor_grams_every = 0;
  CheckpointOptions checkpoint;
  CombineOptions combine;
  OptimizerOptions optimizer;
  // Moments begin anew where the number of baseline batches changes.
  bool reset_moments = false;
  float weight_decay = 0.0f;
  std::vector<std::pair<std::string, float>> group_weight_decay;
};

// The part of them that says when a round closes.
CloseOptions CloseOptionsOf(const CoordinatorOptions& options);

// A worker asks to take part (P3).
struct JoinCall {
  int32_t rank = 0;
  SharedManifest manifest;
  std::string client;
  // Fields of JoinRequest (proto/agg.proto).
  uint64_t resume_session = 0;
  uint64_t resume_version = 0;
  uint64_t resume_made = 0;
  // Identity that joins (P45); "": nobody is asked who they are.
  std::string identity = {};
  bool may_take_over = false;  // a rank whose session is another identity's
  // Limits of sessions at a time, of the identity and of all (P46); 0: not
  // limited.
  int32_t max_own_sessions = 0;
  int32_t max_sessions = 0;
};

// The answer to Join and Observe (JoinReply of proto/agg.proto, without the
// configuration).
struct JoinResult {
  uint64_t session = 0;
  uint64_t epoch = 0;
  uint64_t version = 0;
  bool seeded = false;
  bool seed_role = false;
  uint64_t first_round = 0;
  bool committed = false;
  bool finished = false;
  uint64_t made = 0;      // the epoch that made `version`
  bool rewound = false;   // the worker's parameters are of a past given up
  uint64_t replaced = 0;  // the rank's session until now, 0: none
  bool resumed = false;   // its session goes on
  std::vector<uint64_t> shard_lives;        // by ordinal
  std::vector<std::string> local_sockets;   // of other processes; by ordinal
  std::vector<std::string> region_sockets;  // likewise
  SharedManifest manifest;
  CombinationNames combination;  // of first_round; Observe: the open round
};

// Whether a job with this manifest (if it has one yet) can be combined so.
using CombinationCheck = std::function<absl::Status(
    const CombinationNames&, const std::optional<SharedManifest>&)>;

// What a Commit says about its row. It is kept with the row as it came, so that
// only its source and its users name the fields.
struct CommitInfo {
  RowInfo row;                 // the rank is filled in by the coordinator
  std::optional<double> loss;  // mean over the row's examples
  std::string traceparent;     // well-formed (proto/traceparent.h) or ""
  // Fields of CommitRequest (proto/agg.proto).
  uint32_t parameters_digest = 0;
  std::string absent_tensors;
};

// A worker's word that its row (or the seed) is complete on all shards (P6).
struct CommitCall {
  uint64_t epoch = 0;
  uint64_t session = 0;
  uint64_t round = 0;
  PushKind kind = PushKind::kGradient;
  uint32_t attempt = 0;              // which of the session's pushes
  std::vector<uint32_t> row_crc32c;  // by ordinal; empty: not checked
  CommitInfo info;
  // True if it came with a row's last frame: it counts when all shards have
  // reported the row (P41).
  bool with_frame = false;
  absl::Time came_at = absl::InfinitePast();  // by the coordinator, if it waits
  // Number of the row's first waves that are complete, in a pipelined job, as
  // far as is known; a commit that comes by a call of its own is all there.
  int waves = kMaxWaves;
  // OK, or why the row cannot be complete (ShardPeer::CheckPushed). Filled in
  // by the coordinator.
  absl::Status pushed;
};

// A checkpoint that is complete.
struct TakenCheckpoint {
  uint64_t version = 0;
  uint64_t made = 0;
  int64_t num_bytes = 0;  // of all parts
};

// What an operator asks of a job's checkpoints.
struct RestoreCall {
  bool look = false;        // say what there is, and do nothing
  bool begin_anew = false;  // else: which one
  bool dry_run = false;     // say what would be done, and do nothing
  uint64_t version = 0;
  uint64_t made = 0;  // 0: the newest of that version
};

struct FoundCheckpoint {
  VersionId id;
  std::string missing;  // as MissingText has it
};

struct RestoreResult {
  std::vector<FoundCheckpoint> found;  // newest first
  std::string text;                    // what was done, or would be
};

// A finished job goes on.
struct ResumeResult {
  uint64_t version = 0;
  std::string ended;  // why it had finished
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
  kEvicted,
  kWaiting,    // others are waited for; the message says who
  kWorkerLost  // another one is gone that has not left; the message says who
};

// News for one worker, or for all, sent over its Attend stream.
struct JobEvent {
  JobEventKind kind = JobEventKind::kFinished;
  uint64_t version = 0;
  std::string message;
};

// Why a session is over, as operators hear of it. Apart from JobState, which
// collects such ends, and from CoordinatorState, which writes them to the log.
enum class DepartureKind : uint8_t {
  kLeft,          // by itself
  kLeaseExpired,  // nothing was heard of the worker for the whole lease
  kDisconnected,  // its connection broke, and it was not back in the grace
  kEvicted,       // by an operator
  kSuperseded     // another session joined with its rank
};
constexpr int kNumDepartureKinds = 5;

// One worker whose session is over.
struct Departure {
  DepartureKind kind = DepartureKind::kLeft;
  int32_t rank = 0;
  std::string client;
  std::string reason;  // what the worker's own calls get
  uint64_t session = 0;
  std::string identity;  // whose the session was; "": anybody's
};

// A word for metrics' labels: "left", "lease_expired", "disconnected",
// "evicted", "superseded".
const char* DepartureName(DepartureKind kind);

// Whether the worker went without a word: its machine or its network failed.
bool IsLoss(DepartureKind kind);

// The end of a session in words, without its rank: "is lost: its lease of 30s
// has run out".
std::string WhatHappened(const Departure& departure,
                         const CoordinatorOptions& options);

// One line, for the log. `num_left`: workers that are in the job now.
std::string DescribeDeparture(const Departure& departure,
                              const CoordinatorOptions& options, int num_left);

// --- Checks whether what a worker says makes sense by itself, whatever the
// job's state: pure, and the one place where a Join or a Commit is checked.
// Errors are INVALID_ARGUMENT "field is value; allowed: ...".
//
// Bytes of a text that people read in logs, answers and pages, at most.
inline constexpr int kMaxTextBytes = 512;

// INVALID_ARGUMENT for a text of more than `max_bytes`: kept, logged and sent
// to others, it would cost each of them what one peer has sent.
absl::Status ValidateText(absl::string_view field, absl::string_view text,
                          int max_bytes = kMaxTextBytes);

// The rank is 0 to max_workers - 1, and the client's text has at most
// kMaxTextBytes. The manifest is another matter (JobState::CheckJoin).
absl::Status ValidateJoin(const JoinCall& call, int32_t max_workers);

// Counts are 1 or more, the loss scale is finite and above 0, and the sum of
// squared norms is not below 0. The loss may be anything. A sum that is NaN or
// infinite is taken: a row that has overflowed has such a sum, and its worker
// has to be able to commit it. It counts as a row that was sent without one.
absl::Status ValidateCommit(const CommitInfo& info);

// CommitRequest.absent_tensors names optional tensors of the manifest alone.
absl::Status ValidateAbsentTensors(const std::string& bits,
                                   const Manifest& manifest);

// CommitRequest.row_crc32c is empty or has one entry per shard.
absl::Status ValidateRowCrc32c(const std::vector<uint32_t>& row_crc32c,
                               int num_shards);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_COORDINATOR_TYPES_H_
