// The protocol P2-P6, P12-P14 as a state machine over plain values: members,
// sessions, leases, the seed role, commits, waves and outcomes, and what is
// watched over its rounds. It decides nothing about numbers and does nothing:
// effects are collected for its owner.
#ifndef AGG_SERVER_COORDINATOR_JOB_STATE_H_
#define AGG_SERVER_COORDINATOR_JOB_STATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/shard_plan.h"
#include "proto/shared_manifest.h"
#include "server/base/dcheck.h"
#include "server/combine/options.h"
#include "server/coordinator/awaited_commits.h"
#include "server/coordinator/close_policy.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/round_watches.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"
#include "server/round/session_table.h"
#include "server/round/shard_peer.h"
#include "server/round/worker_transports.h"

namespace agg {

// A worker that takes part, in one life of it.
struct Member {
  int32_t rank = 0;
  uint64_t session = 0;
  std::string client;
  std::string identity;  // to whom the session belongs; "": to anybody
  uint64_t first_round = 0;
  absl::Time lease_end;
  bool disconnected = false;  // its stream broke; it has the grace
  WorkerTransports transports;
};

// A committed row of the open round; outlives its worker (P6).
struct Contribution {
  uint64_t session = 0;
  uint32_t attempt = 0;
  std::vector<uint32_t> row_crc32c;  // as of CommitCall
  CommitInfo info;                   // with the rank
  absl::Time committed_at;
  int waves = 0;  // as of CommitCall
};

// A round that takes no more commits and is about to run.
struct ClosingRound {
  uint64_t epoch = 0;
  uint64_t round = 0;
  std::map<int32_t, Contribution> contributions;  // by rank
  absl::Duration waited;                          // since the round opened
  CloseOffers offers;      // that shards have made for it (P44)
  CombineOptions combine;  // how it is combined; CoordinatorState fills it in
};

// What is to be done for a round that is published wave by wave.
struct WaveStep {
  enum class Kind : uint8_t { kWait, kRun, kFinish, kGiveUp };
  Kind kind = Kind::kWait;
  int wave = 0;                // kRun; counted from 0
  std::vector<int32_t> ranks;  // kRun: whose rows it has
};

// What the owner has to do or to send, in order.
struct JobEffects {
  std::vector<SessionChange> changes;                    // to all shards
  std::vector<std::pair<uint64_t, JobEvent>> events;     // session, or 0: all
  std::vector<std::pair<uint64_t, absl::Status>> ended;  // sessions
  std::vector<Departure> departures;  // for people; one for each of `ended`
};

// What a job goes on from after an epoch has ended: seeded, at a version that
// all shards have (P18, P29).
struct JobStart {
  VersionId id;
  Manifest manifest;
  std::vector<MemberState> members;  // one for each rank at most
  // Sessions that are known to be over, with the reasons; none is a member's.
  SessionTable sessions;
  // Those of them that some shard takes for alive: the rank by session.
  std::map<uint64_t, int32_t> over;
  uint64_t highest_session = 0;  // that anybody has heard of
  JobRecord record;
  // The checkpoint that it comes from; nothing: from memory.
  std::optional<VersionId> restored;
  bool borrowed = false;  // that one is another job's
  // What was made of copies and checkpoints, for people; "": as it was.
  std::string restore;
};

// The outcomes of the last rounds, for workers that ask late (P6).
// Thread-compatible.
class KeptOutcomes {
 public:
  static constexpr int kNumKept = 16;

  KeptOutcomes() = default;
  // Takes outcomes, the oldest first, and keeps the last kNumKept of them.
  explicit KeptOutcomes(std::vector<RoundResult> rounds)
      : rounds_(std::move(rounds)) {
    while (rounds_.size() > kNumKept) rounds_.erase(rounds_.begin());
  }

  // REQUIRES: rounds come in ascending order.
  void Add(RoundResult outcome) {
    AGG_DCHECK(rounds_.empty() || rounds_.back().round < outcome.round);
    rounds_.push_back(std::move(outcome));
    if (rounds_.size() > kNumKept) rounds_.erase(rounds_.begin());
  }

  // Returns the outcome of a round for `session` (0: an observer) that asks
  // about its `attempt`; nothing if it is not kept.
  std::optional<RoundResult> Find(uint64_t round, uint64_t session,
                                  uint32_t attempt) const {
    for (const RoundResult& kept : rounds_) {
      if (kept.round != round) continue;
      RoundResult outcome = kept;
      outcome.included = session != 0 && kept.Contains(session, attempt);
      return outcome;
    }
    return std::nullopt;
  }

  const std::vector<RoundResult>& rounds() const { return rounds_; }

 private:
  std::vector<RoundResult> rounds_;  // oldest first
};

// Thread-compatible; every time comes in as `now`. Invariants, which
// CheckInvariants and FinishRound check:
//  1. At most one live session per rank; sessions never come back.
//  2. A contribution of the open round is never removed, only used up.
//  3. The version never goes back within an epoch.
//  4. Only commits of sessions that are alive are awaited.
//  5. A round goes wave by wave while it is closing.
class JobState {
 public:
  // An unseeded job without members, at `now`, on that many shards. One
  // JobState lives one epoch. `arrivals` outlives it and remembers what the
  // process has seen of workers that are late.
  JobState(const CoordinatorOptions& options, int num_shards,
           ArrivalTimes* arrivals, uint64_t epoch, absl::Time now);
  // A seeded one that goes on from `start`: its members have fresh leases, and
  // no row is committed.
  JobState(const CoordinatorOptions& options, int num_shards,
           ArrivalTimes* arrivals, uint64_t epoch, absl::Time now,
           JobStart start);

  uint64_t epoch() const { return epoch_; }
  bool seeded() const { return seeded_; }
  uint64_t version() const { return version_; }
  VersionId id() const { return {made_, version_}; }
  uint64_t history() const { return history_; }
  const SessionTable& sessions() const { return sessions_; }
  bool finished() const { return finished_; }
  // Why it has finished; "" before.
  const std::string& end_reason() const { return end_reason_; }
  bool started() const { return started_; }
  const std::optional<SharedManifest>& manifest() const { return manifest_; }
  // Whether nobody relies on the manifest any more (P3): the job is not seeded,
  // and nobody is in who joined with it. Then it may go.
  bool ManifestIsUnheld() const;
  // The job has no manifest again. REQUIRES: ManifestIsUnheld().
  void ForgetManifest();
  const std::map<int32_t, Member>& members() const { return members_; }
  const std::map<int32_t, Contribution>& contributions() const {
    return contributions_;
  }

  // Returns ABORTED for another epoch than the one that is on.
  absl::Status CheckEpoch(uint64_t epoch) const;

  // --- Join: checked, begun (the former session ends), passed to the shards by
  // the owner, then finished or cancelled. INVALID_ARGUMENT (ValidateJoin, or
  // another manifest than the job's), FAILED_PRECONDITION (finished),
  // PERMISSION_DENIED (the rank's session belongs to another identity, P45).
  // UNAVAILABLE while a manifest that nobody holds is being forgotten.
  absl::Status CheckJoin(const JoinCall& call) const;
  // Whether the caller brings another manifest than that of a job that is not
  // seeded, and is the only one who is in: a process that was started again
  // with another model. Its former session is in its way.
  bool IsInItsOwnWay(const JoinCall& call) const;
  // Ends that session, as a Join of its rank would. REQUIRES:
  // IsInItsOwnWay(call).
  void EndFormerSession(const JoinCall& call);
  // The session for a Join (P26): the one that it had before, or a new number.
  // ABORTED: what it had is over for good, or another one has the rank.
  absl::StatusOr<uint64_t> SessionFor(const JoinCall& call) const;
  // Whether a session is alive, so that a Join with it goes on in it;
  // ResumeJoin then gives it a fresh lease.
  bool Resumes(uint64_t session) const { return sessions_.Rank(session).ok(); }
  JoinResult ResumeJoin(const JoinCall& call, absl::Time now);
  SessionChange BeginJoin(const JoinCall& call, uint64_t session);
  JoinResult FinishJoin(const JoinCall& call, const SessionChange& change,
                        absl::Time now);
  void CancelJoin(const SessionChange& change);

  // --- Sessions. NOT_FOUND or the reason of the end for those not alive.
  absl::StatusOr<Member*> Find(uint64_t session);
  absl::Status Renew(uint64_t session, absl::Time now);
  // Shortens the lease of a session whose connection broke: it ends after
  // reconnect_grace at the latest.
  absl::Status BeginGrace(uint64_t session, absl::Time now);
  // The last one to leave a job that has begun, or might, ends it.
  absl::Status Leave(uint64_t session, absl::Time now);
  // Ends the rank's session with ABORTED "evicted: reason". NOT_FOUND: nobody
  // has joined as that rank, or nobody any more; the message says why.
  absl::StatusOr<Eviction> Evict(int32_t rank, const std::string& reason);
  // Remembers these sessions as ended, with their reasons, whatever becomes of
  // the job.
  void KeepEvicted(const std::vector<EvictedSession>& evicted);
  // Ends sessions whose lease is over; when the next one ends, otherwise.
  absl::Time ExpireLeases(absl::Time now);

  // --- Commits. ALREADY_EXISTS (another seed), FAILED_PRECONDITION (a round
  // to come, to wait for: after the next; call.pushed), OUT_OF_RANGE (an
  // outcome no longer kept), INVALID_ARGUMENT (ValidateCommit). One that came
  // with a frame waits for its outcome, too, and leaves its worker uncommitted
  // until all shards have reported its row (P41). Notes who comes too late.
  OutcomeAnswer Commit(CommitCall call, absl::Time now);
  // Shard `ordinal` has these rows completely: their commits count, if nothing
  // else is waited for. Without `takes_commits` only waves are noted.
  void NoteComplete(int ordinal, const std::vector<CompleteRow>& rows,
                    bool takes_commits, absl::Time now);
  // The epoch is over, and no row is awaited any more, though a round of it may
  // still be published.
  void StopAwaiting() { awaited_.Begin(0); }
  // Shard `ordinal` offers a close of a round (P44), the newest of its offers.
  void NoteOffer(int ordinal, std::shared_ptr<const CloseOffer> offer);
  // What a Commit or a wait that has been taken is to get.
  OutcomeAnswer Answer(const OutcomeQuery& query) const;
  // The session whose committed seed waits to be published.
  std::optional<uint64_t> seed_committed() const { return seed_committed_; }
  uint32_t seed_attempt() const { return seed_attempt_; }
  // The seed of that attempt is published. REQUIRES: seed_committed().
  void FinishSeed(uint32_t attempt, absl::Time now);

  // --- Rounds. A closed round ends by FinishRound or GiveUpRound.
  CloseSnapshot close_snapshot() const;
  CloseDecision Decide(absl::Time now) const {
    return DecideClose(close_options_, close_snapshot(), now);
  }
  // How long after its first commit the open round closes at the latest; 0: it
  // has no such limit.
  absl::Duration round_timeout() const {
    return TimeoutOf(close_options_, close_snapshot());
  }
  // Ends a job that has been below its floor for too long (P2). Returns whether
  // it has just failed.
  bool FailIfDue(absl::Time now);
  // Closes the open round if the close policy says so.
  std::optional<ClosingRound> CloseIfDue(absl::Time now);
  bool closing() const { return closing_; }
  // Members that have not committed; of a round that goes wave by wave, those
  // that its next wave waits for.
  std::vector<int32_t> MissingRanks() const;
  // Time since when rows have been waited for; InfiniteFuture: nobody has
  // committed.
  absl::Time waiting_since() const { return waiting_since_; }
  // Says who has been waited for too long, if that is to be said now; else "".
  std::string SayWhoIsWaitedFor(absl::Time now);
  // When it may have something to say if nothing changes.
  absl::Time next_saying_at() const { return waiting_report_.next_at(); }
  // The closed round is not published in this epoch, which is over.
  void GiveUpRound();
  // Completes the outcome of the open round with the attempts that it contains,
  // and puts these into *used_rows.
  void AddAttempts(RoundResult* outcome,
                   std::map<int32_t, UsedRow>* used_rows) const;
  // Notes what a round of this epoch came to, before FinishRound: rows that
  // were late, and what is watched. Returns why the job has to fail with the
  // round; "": it does not.
  std::string WatchRound(const RoundReport& report, absl::Time now);
  // The open round ended in the next version; included sessions are those of
  // `contributions` whose rank is in outcome.ranks. `failure`: why the job
  // fails with this round; "": it does not.
  void FinishRound(RoundResult* outcome, absl::Time now,
                   const std::string& failure = "");

  // --- Waves of a round that is closed (P43): NextWave until it says kFinish,
  // and AdvanceWave behind each that has run, with the ranks that a shard
  // lacked.
  void BeginWaves(int num_waves);
  bool waving() const { return open_waves_.has_value(); }
  WaveStep NextWave() const;
  void AdvanceWave(const std::set<int32_t>& dropped);

  // --- What is watched over the epoch's rounds.
  const FloorWatch& floor() const { return floor_; }
  const SkippedRun& skipped() const { return skipped_; }
  const ReplicaWatch& replicas() const { return replicas_; }

  // Ends the job before its time, for good; `why` is for people.
  void Fail(const std::string& why);
  bool failed() const { return failed_; }
  // Marks the job as finished, as it was when its former epoch ended: nobody is
  // told again.
  void StayFinished(const std::string& why, bool failed);
  // Does the same if the version that an epoch goes on from is the last one.
  void StayFinishedIfDue();
  // The limit of the configuration that the version has reached, in words; "":
  // none, so that the job could go on.
  std::string LimitReached() const;
  // JobRecord::line.
  uint64_t line() const { return line_; }

  // Fills in what is known here of a JobRecord: history, started, outcomes,
  // used rows.
  void FillRecord(JobRecord* record) const;

  JobEffects TakeEffects() { return std::exchange(effects_, JobEffects()); }

 private:
  // Checks what holds between the members after each public call. Does nothing
  // with NDEBUG.
  void CheckInvariants() const;
  // Takes members_[rank] out. The caller adds the change for the shards.
  void EndSession(int32_t rank, DepartureKind kind, const absl::Status& reason);
  // Ends the session, notes the change for the shards, and passes the seed role
  // on. For a Leave, the end of a lease and an eviction.
  void RemoveMember(int32_t rank, DepartureKind kind,
                    const absl::Status& reason);
  void PassSeedRole();
  bool HasContribution(int32_t rank, uint64_t session) const;
  void FinishIfLastLeft();
  std::string MaxRoundsReached() const;
  static std::string TauReached(double tau);
  // The version has just been published: its round begins.
  void OpenRound(absl::Time now);
  // The job is over; `why` is for workers and operators.
  void Finish(const std::string& why);
  // FAILED_PRECONDITION: what calls get that come too late.
  absl::Status FinishedError() const;
  absl::Status CheckIdentity(const JoinCall& call) const;
  absl::Status CheckSessions(const JoinCall& call) const;
  absl::Status CheckManifest(const JoinCall& call) const;
  // OK if the session seeds or has seeded.
  absl::Status CheckSeedRole(uint64_t session) const;
  // Takes a commit whose row all shards have `reported`, or have not.
  OutcomeAnswer Take(const CommitCall& call, bool reported, absl::Time now);
  OutcomeAnswer CommitSeed(const CommitCall& call);
  OutcomeAnswer CommitGradient(const CommitCall& call, const Member& member,
                               bool reported, absl::Time now);
  // The rank whose gradient this call commits though its round has been closed
  // without a row of it, or has ended with or without one; nothing: it is not
  // too late, or not known.
  std::optional<int32_t> TooLate(const CommitCall& call) const;
  // The manifest does not change any more: begins to keep commits that came
  // with frames.
  void BeginAwaiting();
  // Notes of how many waves all shards have that row.
  void NoteWaves(const CompleteRow& row);
  OpenWaves::IsAlive IsAlive() const;
  // Who is waited for, in the words of round_watches.h.
  Waiting waiting() const;
  // The offers for the open round.
  CloseOffers TakeOffers();
  void Start(absl::Time now);
  // What a gradient's Commit is refused for before its round is looked at.
  absl::Status CheckRound(const CommitCall& call, const Member& member) const;
  bool OnItsWay(uint64_t round) const;
  OutcomeAnswer Outcome(const OutcomeQuery& query) const;
  RoundResult SeededResult(uint32_t attempt) const;
  uint64_t FirstRound(const JoinCall& call, const SessionChange& change) const;
  uint64_t epoch_first_session() const;
  JoinResult ResultFor(const JoinCall& call, const Member& member) const;
  // Whether the worker's parameters are of a past that was given up (P23).
  bool Rewound(const JoinCall& call) const;
  // The epoch that made a version; 0: not known any more.
  uint64_t MadeOf(uint64_t version) const;
  bool WasUsed(const OutcomeQuery& query) const;
  int32_t NumIn() const;

  CoordinatorOptions options_;
  CloseOptions close_options_;
  int num_shards_;
  ArrivalTimes* arrivals_;
  uint64_t epoch_;
  bool seeded_ = false;
  bool started_ = false;
  bool closing_ = false;
  bool finished_ = false;
  bool failed_ = false;     // by Fail
  std::string end_reason_;  // why it has finished
  bool last_left_ = false;  // nobody is in, and the last one left by itself
  uint64_t version_ = 0;
  uint64_t made_ = 0;     // the epoch that made it
  uint64_t history_ = 0;  // the epoch of the last seed or rewind
  uint64_t line_ = 0;     // as JobRecord has it
  uint64_t highest_session_ = 0;
  // Newest session of each rank that has had one in this epoch.
  std::map<int32_t, uint64_t> newest_sessions_;
  std::optional<SharedManifest> manifest_;
  std::string manifest_of_;  // who brought it, for people; "": not known
  std::map<int32_t, Member> members_;
  SessionTable sessions_;
  uint64_t replaced_first_round_ = 0;  // of the member that BeginJoin replaced
  uint64_t seed_session_ = 0;          // has the role, or had it when seeding
  std::optional<uint64_t> seed_committed_;
  uint32_t seed_attempt_ = 0;  // of seed_committed_, also when it is seeded
  std::map<int32_t, Contribution> contributions_;
  // The number of these when CheckInvariants looked last.
  mutable size_t num_rows_checked_ = 0;
  // Rows of the round after the one that is closing: its version is being
  // published.
  std::map<int32_t, Contribution> next_contributions_;
  AwaitedCommits awaited_;               // begins when the manifest is fixed
  CloseOffers offers_;                   // the newest of each shard
  std::optional<OpenWaves> open_waves_;  // while a round goes wave by wave
  absl::Time opened_at_;
  absl::Time waiting_since_ = absl::InfiniteFuture();
  FloorWatch floor_;
  SkippedRun skipped_;
  ReplicaWatch replicas_;
  WaitingReport waiting_report_;
  KeptOutcomes outcomes_;
  std::map<int32_t, UsedRow> used_rows_;  // by rank
  JobEffects effects_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_JOB_STATE_H_
