// The job's single decision maker: members, leases, commits, rounds. Runs on
// shard 0 and drives all shards through ShardPeer.
#ifndef AGG_SERVER_COORDINATOR_COORDINATOR_H_
#define AGG_SERVER_COORDINATOR_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/rule_change.h"
#include "server/round/round_report.h"
#include "server/round/shard_peer.h"

namespace agg {

// Thread-safe. Callbacks run on the coordinator's thread or the caller's, with
// no lock held; each `done` is called exactly once.
class Coordinator {
 public:
  using OutcomeCallback = std::function<void(absl::StatusOr<RoundResult>)>;
  using JoinCallback = std::function<void(absl::StatusOr<JoinResult>)>;
  using ReportCallback = std::function<void(const RoundReport&)>;
  // Whether a job (with this manifest, if it has one) can be combined so.
  using CombinationCheck = std::function<absl::Status(
      const CombinationNames&, const std::optional<Manifest>&)>;

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

  // An Attend stream of a session is open; events go to `on_event`, which
  // must not block or call back. Returns the stream's number, for Detach.
  // NOT_FOUND for an unknown session.
  absl::StatusOr<uint64_t> Attend(
      uint64_t epoch, uint64_t session,
      std::function<void(const JobEvent&)> on_event);
  // Renews the lease; version published so far on success.
  absl::StatusOr<uint64_t> Renew(uint64_t epoch, uint64_t session);
  // The stream broke: unless the session has another one, its lease ends after
  // reconnect_grace at the latest.
  void Detach(uint64_t stream);

  void Commit(const CommitCall& call, OutcomeCallback done);
  // session 0: `included` is false. epoch 0: any.
  void WaitRound(uint64_t epoch, uint64_t round, uint64_t session,
                 OutcomeCallback done);
  void Leave(uint64_t epoch, uint64_t session,
             std::function<void(absl::Status)> done);

  // --- For operators.
  // From the next round to open, for the coordinator's life. INVALID_ARGUMENT,
  // FAILED_PRECONDITION (finished), or what `check` (may be null) says; it is
  // called under the coordinator's lock.
  absl::StatusOr<RuleChangeResult> SetRule(const RuleChange& change,
                                           const CombinationCheck& check);
  // Ends the rank's session, ABORTED "evicted: reason"; what it has committed
  // stands. NOT_FOUND.
  void Evict(int32_t rank, const std::string& reason,
             std::function<void(absl::StatusOr<Eviction>)> done);
  // The last 256 rounds of all epochs, oldest first.
  std::vector<RoundRecord> Rounds() const;
  // Of the last round, manifest order; empty before it.
  std::vector<double> TensorOrthogonality() const;

  JobStatus Status() const;
  std::optional<RoundResult> LastOutcome() const;
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

#endif  // AGG_SERVER_COORDINATOR_COORDINATOR_H_
