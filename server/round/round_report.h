// What one round did, and how the job stands: plain values for metrics,
// status pages and logs.
#ifndef AGG_SERVER_ROUND_ROUND_REPORT_H_
#define AGG_SERVER_ROUND_ROUND_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/base/job_phase.h"
#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/statistics.h"
#include "server/round/combination_names.h"
#include "server/round/rule_process_status.h"
#include "server/round/shard_seconds.h"
#include "server/round/worker_transports.h"

namespace agg {

// Wall time of a round's phases as the coordinator saw them.
struct PhaseDurations {
  absl::Duration wait;         // opened until the close policy fired
  absl::Duration gram;         // close and Gram, slowest shard
  absl::Duration compensated;  // 0 unless it ran
  absl::Duration decide;       // summing and deciding
  absl::Duration norms;        // 0 unless the optimizer needs it
  absl::Duration update;
  absl::Duration publish;
};

// A committed row that is left out, and the first shard to name it.
struct IncompleteRow {
  int32_t rank = 0;
  int32_t shard = 0;
  // The shard has all of its slices, with other bytes than the commit says;
  // else it lacks some.
  bool other_bytes = false;
};

// A row of a pipelined round that some tensors lack (P43): it had a value there
// that is not finite, or its worker was lost before that part had come.
struct PartialRow {
  int32_t rank = 0;
  int num_tensors = 0;  // that have it
  int of = 0;           // tensors of the job
};

// Where an update has left parameters that are not finite: the first such
// tensor of the manifest, and the shard that has it.
struct NotFiniteParameters {
  std::string tensor;
  int32_t shard = 0;
};

// What narrowing the version to pull_dtype has lost (NarrowingLoss), of all
// shards.
struct NarrowedVersion {
  std::string tensor;  // the first one with a value that is infinite; "": none
  int32_t shard = 0;   // that has it
  uint64_t num_infinite = 0;
  uint64_t num_compared = 0;
  uint64_t num_vanished = 0;

  // A few values vanish in every f16: a parameter near zero is nothing to say.
  bool has_vanished() const { return num_vanished * 1000 > num_compared; }
  bool worth_saying() const { return num_infinite > 0 || has_vanished(); }
};

// A committed row: what a rule knows of it, and what its Commit said
// (CommitRequest of proto/agg.proto).
struct ReportedRow : RowInfo {
  uint64_t session = 0;  // 0: not known
  uint32_t attempt = 0;
  std::vector<uint32_t> row_crc32c;  // by ordinal; empty: not sent
  // Digest of the parameters that it was computed on (P49); 0: not sent.
  uint32_t parameters_digest = 0;
  std::string absent_tensors;
  absl::Duration commit_delay;  // after the round's first commit
  std::string traceparent;      // W3C; "": none
};

// One round, as decided. Sent to the observer after publication.
struct RoundReport {
  uint64_t epoch = 0;    // that made the version
  uint64_t history = 0;  // epoch of the last seed or rewind before it
  uint64_t round = 0;
  uint64_t version = 0;  // published
  // Made from the job's record after a recovery, for the round log alone: the
  // report may be lost with its coordinator. It lacks all numbers.
  bool restored = false;
  bool applied = false;           // false: skipped
  std::string message;            // why skipped, fallbacks
  CombinationNames combination;   // in effect in the round
  std::vector<ReportedRow> rows;  // committed
  // Committed rows that are left out; they are among rows, and among
  // decision.excluded_ranks. Ascending.
  std::vector<IncompleteRow> incomplete_rows;
  // Rows of a pipelined round that some tensors lack; they are among rows, and
  // among decision.excluded_ranks. Ascending.
  std::vector<PartialRow> partial_rows;
  std::optional<NotFiniteParameters> not_finite;  // after this applied round
  NarrowedVersion narrowed;                       // likewise
  // Whether the message names decision.equal_ranks: once in a while is enough.
  bool says_equal_rows = false;
  double num_batches = 0.0;  // baseline batches of the committed rows
  // Number of them in the last applied round, where the optimizer's moments
  // began anew since this round has another one.
  std::optional<double> moments_of;
  double loss = 0.0;  // mean over rows that sent one, by examples; or NaN
  Decision decision;  // next_state is empty here
  RoundStatistics statistics;
  PhaseDurations durations;
  absl::Time finished_at;                   // published on all shards
  std::vector<ShardSeconds> shard_seconds;  // by ordinal
};

// One worker as the coordinator sees it.
struct WorkerState {
  int32_t rank = 0;
  std::string client;
  bool committed = false;
  bool attending = false;
  absl::Duration lease_remaining;
  absl::Duration waited_for;  // how long the open round has waited for it
  // Arrivals since the process started, as RankArrivals of
  // server/coordinator/close_policy.h has them.
  uint64_t late_rows = 0;
  uint64_t last_rows = 0;
  absl::Duration lateness;
  WorkerTransports transports;  // as of its last renewal that said so
};

// Sessions that are over, since the process started, by why.
struct EndedWorkers {
  std::string reason;  // DepartureName
  uint64_t number = 0;
};

// A job's checkpoints, as its coordinator knows them.
struct CheckpointStatus {
  bool configured = false;  // else the rest means nothing
  // The newest complete one that this process has sealed or gone on from;
  // made 0: there is none.
  uint64_t version = 0;
  uint64_t made = 0;
  absl::Duration age;  // since it was sealed, or restored here
  bool writing = false;
  std::string last_error;  // of the newest attempt; "": it went well
  uint64_t num_sealed = 0;
  uint64_t num_failed = 0;
  uint64_t num_skipped = 0;       // due while one was being written
  uint64_t restored_version = 0;  // that the job has gone on from
  uint64_t restored_made = 0;     // 0: from none
  std::string restore;  // what was made of them at the last start, in words
};

// The coordinator's part of a status: one consistent moment.
struct JobStatus {
  JobPhase phase = JobPhase::kWaitingForShards;
  uint64_t epoch = 0;
  uint64_t version = 0;  // published; meaningless while unseeded
  uint64_t round = 0;    // open round
  bool seeded = false;
  std::vector<WorkerState> workers;
  std::vector<int32_t> missing_ranks;
  // When rounds close after their first commit at the latest; 0: never.
  absl::Duration round_timeout;
  int32_t min_workers = 1;   // the floor of every round
  bool below_floor = false;  // fewer workers are in, since:
  absl::Duration below_floor_for;
  uint64_t consecutive_skipped_rounds = 0;  // up to the last round
  bool failed = false;  // the job has finished by giving up: `message`
  // Number of rounds from the one whose update left parameters that are not
  // finite up to the last one; 0: the last update left finite ones.
  uint64_t not_finite_rounds = 0;
  // Ranks whose parameters were others than those of the most, in the last
  // rounds (server/coordinator/round_watches.h); ascending.
  std::vector<int32_t> differing_ranks;
  std::vector<EndedWorkers> ended_workers;  // one for each reason there is
  std::vector<RuleProcessStatus> rule_processes;  // by name
  std::string message;
  uint64_t history = 0;     // the epoch of the last seed or rewind
  uint64_t rewinds = 0;     // in this process
  std::string recovering;   // what is waited for between epochs; "": nothing
  bool replicated = false;  // each part has its two copies
  CheckpointStatus checkpoint;
  // Reasons, by ordinal, why the coordinator does not have the shard; "": it
  // has it. Shorter than the list of shards until all were tried.
  std::vector<std::string> shard_errors;
  // Number of times, by ordinal, that the shard was lost because it answered no
  // phase.
  std::vector<uint64_t> phase_timeouts;
  CombinationNames combination;       // of the open round
  CombinationNames next_combination;  // of the next one; the same as a rule
};

// One shard's part: every agg_server process has it.
struct ShardStatus {
  int32_t ordinal = 0;
  uint64_t epoch = 0;
  bool attached = false;  // the epoch is not over
  bool open = false;      // and workers are served in it
  bool published = false;
  uint64_t version = 0;
  int64_t num_slices = 0;
  int64_t num_elements = 0;  // parameters, without what slices are padded by
  int64_t memory_planned_bytes = 0;
  int64_t memory_budget_bytes = 0;
  // The backend's device; zeros without one.
  int64_t device_memory_planned_bytes = 0;
  int64_t device_memory_budget_bytes = 0;
  int64_t device_memory_total_bytes = 0;
  int64_t device_memory_used_bytes = 0;  // by all processes
  int64_t push_bytes = 0;                // payload landed, total since start
  int64_t push_bytes_in_place = 0;       // of these, in shared memory (P39)
  int64_t push_bytes_on_device = 0;      // of these, on the device (P47)
  int64_t duplicate_bytes = 0;  // payload dropped: duplicates, closed rounds
  int64_t pull_bytes = 0;       // payload handed to the transport
  int64_t pull_bytes_in_place = 0;   // of these, read in shared memory (P40)
  int64_t pull_bytes_on_device = 0;  // of these, on the device (P48)
  int64_t crc_errors = 0;
  int64_t revoked_snapshots = 0;  // pulls cancelled to free a buffer
  int64_t overtaken_pulls = 0;    // of these, with bytes that nobody had taken
  // Slices whose Gram was there when their round closed, and those computed
  // then.
  int64_t early_grams = 0;
  int64_t grams_at_close = 0;
  // Buffers of the process that were to be shared with workers and are not:
  // rows and versions, by why (P39, P40).
  int64_t shared_rows_refused = 0;  // by the system
  int64_t shared_rows_no_memory = 0;
  int64_t shared_versions_refused = 0;
  int64_t shared_versions_no_memory = 0;
  int64_t staged_rows = 0;  // shared, and not registered with the device
  int64_t staged_versions = 0;
  int64_t shared_fallbacks() const {
    return shared_rows_refused + shared_rows_no_memory +
           shared_versions_refused + shared_versions_no_memory;
  }
  std::string backend;
  int64_t backend_errors = 0;  // calls of it that failed
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_ROUND_REPORT_H_
