// The protocol P2-P6, P12-P14 as a state machine over plain values: members,
// sessions, leases, the seed role, commits and outcomes. It decides nothing
// about numbers and does nothing: effects are collected for its owner.
#ifndef AGG_SERVER_COORDINATOR_JOB_STATE_H_
#define AGG_SERVER_COORDINATOR_JOB_STATE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/coordinator/close_policy.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/session_table.h"
#include "server/round/shard_peer.h"

namespace agg {

// A worker that is in.
struct Member {
  int32_t rank = 0;
  uint64_t session = 0;
  std::string client;
  uint64_t first_round = 0;
  absl::Time lease_end;
};

// A committed row of the open round; outlives its worker (P6).
struct Contribution {
  uint64_t session = 0;
  RowInfo row;
  std::optional<double> loss;
  absl::Time committed_at;
  std::string traceparent;  // as CommitCall
};

// What the owner has to do or tell, in order.
struct JobEffects {
  std::vector<SessionChange> changes;                    // to all shards
  std::vector<std::pair<uint64_t, JobEvent>> events;     // session, or 0: all
  std::vector<std::pair<uint64_t, absl::Status>> ended;  // sessions
};

// Outcomes that are kept for late askers (P6).
inline constexpr size_t kNumKeptOutcomes = 16;

// Thread-compatible; every time comes in as `now`. Invariants:
//  1. At most one live session per rank; sessions never come back.
//  2. A contribution of the open round is never removed, only used up.
//  3. The version never goes back within an epoch.
class JobState {
 public:
  // An unseeded job without members, at `now`. One JobState lives one epoch.
  JobState(const CoordinatorOptions& options, uint64_t epoch, absl::Time now)
      : options_(options), epoch_(epoch), opened_at_(now) {}

  uint64_t epoch() const { return epoch_; }
  bool seeded() const { return seeded_; }
  uint64_t version() const { return version_; }
  bool finished() const { return finished_; }
  bool started() const { return started_; }
  const std::optional<Manifest>& manifest() const { return manifest_; }
  const std::map<int32_t, Member>& members() const { return members_; }
  const std::map<int32_t, Contribution>& contributions() const {
    return contributions_;
  }

  // ABORTED for another epoch than the one that is on.
  absl::Status CheckEpoch(uint64_t epoch) const;

  // --- Join: checked, begun (the former session ends), told to the shards by
  // the owner, then finished or cancelled. INVALID_ARGUMENT (rank, manifest),
  // FAILED_PRECONDITION (finished).
  absl::Status CheckJoin(const JoinCall& call) const;
  SessionChange BeginJoin(const JoinCall& call, uint64_t session);
  JoinResult FinishJoin(const JoinCall& call, const SessionChange& change,
                        absl::Time now);
  void CancelJoin(const SessionChange& change);

  // --- Sessions. NOT_FOUND or the reason of the end for those not alive.
  absl::StatusOr<Member*> Find(uint64_t session);
  absl::Status Renew(uint64_t session, absl::Time now);
  // Its connection broke: the lease ends after reconnect_grace at the latest.
  absl::Status BeginGrace(uint64_t session, absl::Time now);
  absl::Status Leave(uint64_t session);
  // Ends the rank's session with ABORTED "evicted: reason". NOT_FOUND: nobody
  // has joined as that rank.
  absl::StatusOr<Eviction> Evict(int32_t rank, const std::string& reason);
  // Ends sessions whose lease is over; when the next one ends, otherwise.
  absl::Time ExpireLeases(absl::Time now);

  // --- Commits. A value: the outcome is known. Nothing: wait for it.
  // ALREADY_EXISTS (seed), FAILED_PRECONDITION (a round to come, call.pushed),
  // OUT_OF_RANGE (an outcome no longer kept), INVALID_ARGUMENT (row).
  absl::StatusOr<std::optional<RoundResult>> Commit(const CommitCall& call,
                                                    absl::Time now);
  absl::StatusOr<std::optional<RoundResult>> Outcome(uint64_t round,
                                                     uint64_t session) const;
  // The session whose committed seed waits to be published.
  std::optional<uint64_t> seed_committed() const { return seed_committed_; }
  void FinishSeed(absl::Time now);

  // --- Rounds.
  CloseSnapshot close_snapshot() const;
  std::vector<int32_t> MissingRanks() const;
  // Since when rows have been waited for; InfiniteFuture: nobody has committed.
  absl::Time waiting_since() const { return waiting_since_; }
  void Start(absl::Time now);
  void BeginClosing() { closing_ = true; }
  // The open round ended in the next version; included sessions are those of
  // `contributions` whose rank is in outcome.ranks.
  void FinishRound(RoundResult outcome, absl::Time now);

  JobEffects TakeEffects() { return std::exchange(effects_, JobEffects()); }

 private:
  struct KeptOutcome {
    RoundResult outcome;
    std::set<uint64_t> sessions;  // included
  };
  // Takes members_[rank] out; the shards are told by the caller.
  void EndSession(int32_t rank, const absl::Status& reason);
  // Leave, the lease's end, an eviction: the shards are told, the seed role is
  // passed on.
  void RemoveMember(int32_t rank, const absl::Status& reason,
                    bool evicted = false);
  void PassSeedRole();
  bool HasContribution(int32_t rank, uint64_t session) const;
  void FinishIfLastLeft();
  // The version has just been published: its round begins.
  void OpenRound(absl::Time now);
  void Finish();
  absl::StatusOr<std::optional<RoundResult>> CommitSeed(const CommitCall& call);
  uint64_t FirstRound(const SessionChange& change) const;

  CoordinatorOptions options_;
  uint64_t epoch_;
  bool seeded_ = false;
  bool started_ = false;
  bool closing_ = false;
  bool finished_ = false;
  bool last_left_ = false;  // nobody is in, and the last one left by itself
  uint64_t version_ = 0;
  std::optional<Manifest> manifest_;
  std::map<int32_t, Member> members_;
  SessionTable sessions_;
  uint64_t replaced_first_round_ = 0;  // of whom the last BeginJoin replaced
  uint64_t seed_session_ = 0;          // has the role, or had it when seeding
  std::optional<uint64_t> seed_committed_;
  std::map<int32_t, Contribution> contributions_;
  // Of the round after, whose version is being published.
  std::map<int32_t, Contribution> next_contributions_;
  absl::Time opened_at_;
  absl::Time waiting_since_ = absl::InfiniteFuture();
  std::deque<KeptOutcome> outcomes_;  // ascending rounds
  JobEffects effects_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_JOB_STATE_H_
