// The state of a Coordinator. Its parts are in coordinator.cc (calls from other
// threads), coordinator_admin.cc (operators' calls), and coordinator_loop.cc,
// _members.cc and _rounds.cc (what its own thread does).
#ifndef AGG_SERVER_COORDINATOR_COORDINATOR_IMPL_H_
#define AGG_SERVER_COORDINATOR_COORDINATOR_IMPL_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "server/base/mutex.h"
#include "server/coordinator/attendance.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/peer_group.h"
#include "server/coordinator/round_engine.h"

namespace agg {

// One thread ("the loop", or a test that calls RunOnce) changes membership and
// runs rounds, one thing after another; commits, renewals and questions come
// from any thread under mutex_. Peers are called without it.
class Coordinator::Impl {
 public:
  Impl(const CoordinatorOptions& options, std::vector<ShardPeer*> peers,
       const Clock* clock, ReportCallback on_report);
  ~Impl();

  void Start();
  bool RunOnce();
  void Join(const JoinCall& call, JoinCallback done);
  absl::StatusOr<JoinResult> Observe() const;
  absl::StatusOr<uint64_t> Attend(
      uint64_t epoch, uint64_t session,
      std::function<void(const JobEvent&)> on_event);
  absl::StatusOr<uint64_t> Renew(uint64_t epoch, uint64_t session);
  void Detach(uint64_t stream);
  void Commit(CommitCall call, OutcomeCallback done);
  void WaitRound(uint64_t epoch, uint64_t round, uint64_t session,
                 OutcomeCallback done);
  void Leave(uint64_t epoch, uint64_t session,
             std::function<void(absl::Status)> done);
  absl::StatusOr<RuleChangeResult> SetRule(const RuleChange& change,
                                           const CombinationCheck& check);
  void Evict(int32_t rank, const std::string& reason,
             std::function<void(absl::StatusOr<Eviction>)> done);
  std::vector<RoundRecord> Rounds() const;
  std::vector<double> TensorOrthogonality() const;
  JobStatus Status() const;
  std::optional<RoundResult> LastOutcome() const;
  bool finished() const;
  void Drain(absl::Time deadline);

 private:
  struct Waiter {
    PushKind kind = PushKind::kGradient;
    uint64_t round = 0;
    uint64_t session = 0;
    OutcomeCallback done;
  };
  using Closures = std::vector<std::function<void()>>;
  using EventCallback = std::function<void(const JobEvent&)>;

  // OK while an epoch is on and the job takes calls.
  absl::Status Gate() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Gate(uint64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddWaiter(Waiter waiter) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waiters that have their answer now, or `reason` for all of them.
  Closures AnswerWaiters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Closures FailWaiters(const absl::Status& reason)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Closures TellAll(const JobEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void RunAll(const Closures& closures);
  // Ends the epoch, unless the job has finished: everybody learns `reason`.
  // From any thread.
  void LoseEpoch(uint64_t epoch, const absl::Status& reason);
  // What peers call: LoseEpoch while there is a coordinator.
  std::function<void(absl::Status)> LossCallback(uint64_t epoch);

  // A round opens, or may soon: what was set for it takes effect.
  void OpenCombination() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of the open round or a later one.
  CombinationNames CombinationOf(uint64_t round) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Record(const RoundReport& report, const RoundResult& outcome)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // --- The loop.
  void Loop();
  absl::Time NextWake() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool RunOperation();
  bool AttachIfDue();
  void SpreadLoss();
  bool ExpireIfDue();
  bool SeedIfDue();
  bool RoundIfDue();
  void RunRound(uint64_t epoch, uint64_t round,
                const std::map<int32_t, Contribution>& contributions,
                absl::Duration waited);
  void WarnOfStragglers(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DoJoin(const JoinCall& call, const JoinCallback& done);
  absl::StatusOr<JoinResult> TryJoin(const JoinCall& call);
  // The first manifest was refused by a shard: the others need no memory for
  // it.
  void ForgetRefusedManifest();
  absl::StatusOr<Eviction> DoEvict(int32_t rank, const std::string& reason);
  absl::Status SpreadSession(uint64_t epoch, const SessionChange& change);
  // Carries out what the state asks for: tells shards, workers, waiters.
  void DeliverEffects();

  // Peers outlive the coordinator and may call at any time.
  struct LossListener {
    Mutex mutex;
    CondVar calls_ended;
    Impl* impl ABSL_GUARDED_BY(mutex) = nullptr;  // null: gone
    int num_calls ABSL_GUARDED_BY(mutex) = 0;     // under way
  };
  void StopListening();

  const CoordinatorOptions options_;
  const CloseOptions close_options_;
  const Clock* const clock_;
  const ReportCallback on_report_;
  PeerGroup peers_;     // the loop's, but for peer(0)->CheckPushed
  RoundEngine engine_;  // the loop's

  const std::shared_ptr<LossListener> listener_;
  mutable Mutex mutex_;
  CondVar changed_;
  // Null until all shards were attached for the first time.
  std::unique_ptr<JobState> state_ ABSL_GUARDED_BY(mutex_);
  bool epoch_on_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status no_epoch_ ABSL_GUARDED_BY(mutex_);       // why, while none is on
  std::string lost_after_end_ ABSL_GUARDED_BY(mutex_);  // if a shard was
  bool spread_loss_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t last_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time next_attach_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::deque<std::function<void()>> operations_ ABSL_GUARDED_BY(mutex_);
  Attendance attendance_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  CombineOptions combine_ ABSL_GUARDED_BY(mutex_);  // of the open round
  std::optional<CombineOptions> next_combine_ ABSL_GUARDED_BY(mutex_);
  std::optional<RoundResult> last_outcome_ ABSL_GUARDED_BY(mutex_);
  std::deque<RoundRecord> rounds_ ABSL_GUARDED_BY(mutex_);
  std::vector<double> tensor_orthogonality_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> warned_round_ ABSL_GUARDED_BY(mutex_);
  bool in_round_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_COORDINATOR_IMPL_H_
