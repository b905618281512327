// The job's single decision maker: members, leases, commits, rounds. Runs on
// shard 0 and drives all shards through ShardPeer.
#ifndef AGG_SERVER_ROUND_COORDINATOR_H_
#define AGG_SERVER_ROUND_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/optimizer_step.h"
#include "proto/shard_plan.h"
#include "server/base/clock.h"
#include "server/combine/options.h"
#include "server/ingest/frame.h"
#include "server/round/round_report.h"
#include "server/round/shard_peer.h"

namespace agg {

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
};

struct CommitCall {
  uint64_t epoch = 0;
  uint64_t session = 0;
  uint64_t round = 0;
  PushKind kind = PushKind::kGradient;
  RowInfo row;  // rank is filled in by the coordinator
  std::optional<double> loss;
};

enum class OutcomeKind : uint8_t { kApplied, kSkipped, kSeeded };

// What a round came to, for one asker.
struct RoundOutcome {
  uint64_t epoch = 0;
  uint64_t round = 0;
  uint64_t version = 0;
  OutcomeKind kind = OutcomeKind::kApplied;
  bool included = false;
  std::vector<int32_t> ranks;
  std::vector<int32_t> excluded_ranks;
  double learning_rate = 0.0;
  double gain = 1.0;
  double tau = 0.0;
  double orthogonality = 0.0;
  bool finished = false;
  std::string message;
  double loss = 0.0;
  double combined_norm = 0.0;
};

enum class JobEventKind : uint8_t {
  kShardLost, kFinished, kSuperseded, kSeedRole, kDraining, kExpired
};
struct JobEvent {
  JobEventKind kind = JobEventKind::kFinished;
  uint64_t version = 0;
  std::string message;
};

// Thread-safe. Callbacks run on the coordinator's thread or the caller's, with
// no lock held; each `done` is called exactly once.
class Coordinator {
 public:
  using OutcomeCallback = std::function<void(absl::StatusOr<RoundOutcome>)>;
  using JoinCallback = std::function<void(absl::StatusOr<JoinResult>)>;
  using ReportCallback = std::function<void(const RoundReport&)>;

  // `peers` by ordinal, `clock` and they outlive the coordinator. `on_report`
  // is called after each round, from the coordinator's thread.
  Coordinator(const CoordinatorOptions& options, std::vector<ShardPeer*> peers,
              const Clock* clock, ReportCallback on_report);
  ~Coordinator();

  // Starts the thread that attaches the shards and runs rounds. Tests call
  // RunOnce instead, with their own clock.
  void Start();
  // Does all that is due now (attach, joins, leases, a round); whether it did
  // anything.
  bool RunOnce();

  void Join(const JoinCall& call, JoinCallback done);
  // The job's description; FAILED_PRECONDITION before there is a manifest.
  absl::StatusOr<JoinResult> Observe() const;

  // The Attend stream of a session is open; events go to `on_event`, which
  // must not block or call back. NOT_FOUND for an unknown session.
  absl::Status Attend(uint64_t epoch, uint64_t session,
                      std::function<void(const JobEvent&)> on_event);
  // Renews the lease; version published so far on success.
  absl::StatusOr<uint64_t> Renew(uint64_t epoch, uint64_t session);
  // The stream broke: the lease ends after reconnect_grace at the latest.
  void Detach(uint64_t session);

  void Commit(const CommitCall& call, OutcomeCallback done);
  // session 0: `included` is false. epoch 0: any.
  void WaitRound(uint64_t epoch, uint64_t round, uint64_t session,
                 OutcomeCallback done);
  void Leave(uint64_t epoch, uint64_t session,
             std::function<void(absl::Status)> done);

  JobStatus Status() const;
  std::optional<RoundOutcome> LastOutcome() const;
  bool finished() const;

  // Stops taking joins and new rounds, waits for a round in execution until
  // `deadline` (real time), fails everything that waits with UNAVAILABLE
  // "draining". Idempotent.
  void Drain(absl::Time deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_COORDINATOR_H_
