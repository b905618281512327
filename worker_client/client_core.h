// What AggClient does. Apart from agg_client.h because it needs gRPC and
// protobuf, which users of the client need not see.
#ifndef AGG_WORKER_CLIENT_CLIENT_CORE_H_
#define AGG_WORKER_CLIENT_CLIENT_CORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "server/base/mutex.h"
#include "worker_client/client_types.h"
#include "worker_client/coordinator_session.h"
#include "worker_client/copy_threads.h"
#include "worker_client/growing_row.h"
#include "worker_client/job_view.h"
#include "worker_client/membership.h"
#include "worker_client/pull_stream.h"
#include "worker_client/retry.h"
#include "worker_client/row_encoding.h"
#include "worker_client/row_ledger.h"
#include "worker_client/row_pusher.h"
#include "worker_client/shard_regions.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"
#include "worker_client/version_view.h"

namespace agg {

// Joins the membership, the coordinator's calls and the streams of the shards.
// The methods are AggClient's, which states their contracts. Thread-safe.
class ClientCore {
 public:
  ClientCore(const ClientOptions& options,
             std::unique_ptr<Membership> membership, ShardRouter router);

  absl::StatusOr<RoundOutcome> Seed(absl::Span<const TensorView> parameters);
  absl::Status SeedOrPull(absl::Span<const MutableTensorView> parameters);
  // Returns OK if this client pushes; FAILED_PRECONDITION for an observer.
  absl::Status CheckPushes() const;
  // Pushes a row of a gradient for `round`, while its tensors come. `name`
  // becomes the name of its attempt, as soon as it has one. `cancel` ends this.
  // `requested`: what is tried at once with a complete row (P41); may be null.
  absl::Status PushRow(uint64_t round, GrowingRow* row, CancelSource* cancel,
                       RowName* name, TripRequest* requested);
  RowName LastRow() const;  // of version(), as last pushed
  absl::StatusOr<RoundOutcome> Commit(const RowName& row, const PushInfo& info,
                                      CancelSource* cancel) {
    return CommitRow(row, info, nullptr, cancel);
  }
  // Does what follows a row's push in a round: PushPull's contract. `pushed`:
  // how PushRow has ended; `requested`: what came of that request.
  absl::StatusOr<RoundOutcome> FinishRound(const absl::Status& pushed,
                                           const RowName& name, GrowingRow* row,
                                           const TripRequest& requested);
  absl::Status Pull(uint64_t version, const PullInto& into);
  absl::StatusOr<uint64_t> PullLatest(const PullInto& into);
  absl::StatusOr<std::vector<MutableTensorView>> RowTensors();
  absl::StatusOr<std::vector<RowView>> RowViews();
  absl::StatusOr<std::unique_ptr<VersionView>> PullView(uint64_t version);
  absl::StatusOr<uint64_t> LatestVersion();
  absl::StatusOr<RoundOutcome> Wait(uint64_t version,
                                    CancelSource* cancel = nullptr);
  absl::StatusOr<Reduction> Reduce(const std::string& what,
                                   const std::vector<double>& values,
                                   CancelSource* cancel);
  absl::Status Leave();

  uint64_t version() const { return version_; }
  uint64_t session() const { return membership_->view()->session(); }
  bool seed_role() const { return membership_->view()->seed_role(); }
  bool finished() const { return membership_->finished(); }
  const ShardRouter& router() const { return *router_; }
  std::shared_ptr<const ShardRouter> shared_router() const { return router_; }
  const JobDescription& job() const { return job_; }  // when it connected
  JobDescription JobNow() const;
  TensorDevices* devices() { return &devices_; }
  // Binds as ShardRouter::Bind does, and finds where the tensors are; errors as
  // of DevicesOf, too.
  absl::StatusOr<PullInto> IntoOf(
      absl::Span<const MutableTensorView> parameters);
  // Makes the pull wait for all that its devices were given by now. INTERNAL:
  // the driver's errors.
  absl::Status MarkTargets(PullInto* into);

 private:
  using View = Membership::View;

  // Asks the shards whether they share memory.
  static JobDescription Describe(const JobView& view, ShardRegions* regions);
  // Takes into account what the shards of another epoch still have (P27).
  void CatchUp(const JobView& view);
  // Pushes the row to the shards that lack it.
  absl::Status PushOwed(const View& view, const RowName& name, GrowingRow* row,
                        TripRequest* requested = nullptr)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_turn_);
  // Returns the devices by which the row's side is chosen when it begins: those
  // of its tensors, but while it is not complete and all tensors that have come
  // are the host's, those of the last whole row, or seed.
  std::set<int> DevicesFor(const GrowingRow& row) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_turn_);
  // Returns the shards that lack the row, or why the view is over.
  absl::StatusOr<std::vector<int>> Owed(const View& view, const RowName& name);
  // Does the work of PushRow in one epoch.
  absl::Status PushOnce(const View& view, uint64_t round, GrowingRow* row,
                        RowName* name, TripRequest* requested)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_turn_);
  // Returns the shards that rows go to in one trip; none: they do not.
  std::vector<int> ShardsOfTrip(const JobView& view);
  // Whether the row may go in one trip.
  bool MayTry(const JobView& view, const std::vector<int>& owed,
              const TripRequest* requested)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_turn_);
  // Tries to push the row in one trip. What has not come is to be asked for
  // with ordinary calls. OK: it went, or ordinary calls may; else what the
  // devices' wait ended with.
  absl::Status TryTrip(const View& view, const v1::FrameMeta& meta,
                       const RowName& name, GrowingRow* row,
                       TripRequest* requested)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_turn_);
  // Waits for all that the row's and the targets' devices were given to do.
  absl::Status AwaitDevices(const View& view, const GrowingRow& row,
                            const PullInto& into);
  // Writes down what has come of the trip.
  void NoteTrip(const View& view, const RowName& name, const RoundTrip& trip,
                TripRequest* requested);
  DType PullDType(const PullInto& into) const {
    return into.precision == Precision::kFull ? DType::kF32 : job_.pull_dtype;
  }
  // Takes the receipts of the pusher's last push, which was of `name`.
  void TakeReceipts(const View& view, const RowName& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_turn_);
  // Commits the row. `gradient` is for shards that have lost it; null: then
  // DATA_LOSS.
  absl::StatusOr<RoundOutcome> CommitRow(const RowName& row,
                                         const PushInfo& info,
                                         GrowingRow* gradient,
                                         CancelSource* cancel);
  absl::StatusOr<RoundOutcome> CommitOnce(const View& view, const RowName& row,
                                          const PushInfo& info,
                                          GrowingRow* gradient,
                                          const CallLimit& limit);
  // Pushes the seed, unless only the answer is missing. `row`: the name of this
  // worker's last attempt, in `row_epoch`.
  absl::Status PushSeed(const View& view, GrowingRow* seed, RowName* row,
                        uint64_t* row_epoch);
  absl::StatusOr<RoundOutcome> SeedOnce(const View& view, GrowingRow* seed,
                                        RowName* row, uint64_t* row_epoch);
  // Writes down what this worker knows of its row, and tells the feedback.
  void Audit(const RowName& row, const RoundOutcome& outcome);
  // Returns the outcome if the worker goes on without its row's; else `status`.
  absl::StatusOr<RoundOutcome> Missed(const RowName& row,
                                      const absl::Status& status,
                                      CancelSource* cancel);
  // Pulls the outcome's version, or what has taken its place.
  absl::StatusOr<RoundOutcome> PullOutcome(RoundOutcome outcome,
                                           const PullInto& into);
  // Returns the address of each of the job's slices in this worker's row, which
  // stays mapped as long as this client.
  absl::StatusOr<std::vector<const char*>> RowSlices();
  // Returns OK if `version` is there, or comes without this worker.
  absl::Status CheckAwaited(const JobView& view, uint64_t version) const;
  // Pulls the version of the view's first round; ends when this worker gets the
  // seed role.
  absl::Status PullFirst(const PullInto& into);
  absl::Status PullOnce(const View& view, uint64_t version,
                        const PullInto& into, absl::Time deadline,
                        bool wait_for_seed = false);
  // Returns how the view's shards are pulled from.
  PullSettings SettingsFor(const View& view);
  // Waits until `version` can be pulled. *end: by when its bytes are to be
  // there.
  absl::Status AwaitPublished(const View& view, uint64_t version,
                              const CallLimit& limit, absl::Time* end);
  // One view's part: asks until the sums are there. *waits: for whom, in words.
  absl::StatusOr<Reduction> ReduceOnce(const View& view,
                                       const ReductionCall& call,
                                       const CallLimit& limit,
                                       WaitReport* report, std::string* waits);
  // Takes back what was given; the sums if it was made meanwhile. Any error:
  // the server could not be asked in time.
  absl::StatusOr<Reduction> Withdraw(const ReductionCall& call);
  // Whether a pull failed because newer versions replaced its version.
  bool IsGone(const absl::Status& status) const;

  const ClientOptions options_;
  const std::unique_ptr<Membership> membership_;
  CoordinatorSession session_;
  const std::shared_ptr<const ShardRouter> router_;
  CopyThreads copies_;
  TensorDevices devices_;
  ShardRegions regions_;
  const JobDescription job_;
  const std::vector<int> trip_shards_;  // empty: rows are too large for trips
  const std::vector<int> pipelined_shards_;  // of trips of a pipelined job
  AuditLog audit_;
  std::atomic<uint64_t> version_;
  PushTurn reduce_turn_;  // a worker has one reduction at a time
  const uint64_t giver_;  // names this object's reductions, with a number (P51)
  uint64_t num_reductions_ ABSL_GUARDED_BY(reduce_turn_) = 0;
  PushTurn push_turn_;  // pushes take turns; before any mutex
  View pusher_view_ ABSL_GUARDED_BY(push_turn_);  // outlives the pusher
  std::unique_ptr<RowPusher> pusher_ ABSL_GUARDED_BY(push_turn_);
  std::set<int> last_devices_ ABSL_GUARDED_BY(push_turn_);
  mutable Mutex ledger_mutex_;  // a Push has the turn until its end
  RowLedger ledger_ ABSL_GUARDED_BY(ledger_mutex_);
  // What RowSlices gave points into these.
  std::vector<std::shared_ptr<const MappedRegions>> row_owners_
      ABSL_GUARDED_BY(ledger_mutex_);
  uint64_t ledger_view_ ABSL_GUARDED_BY(ledger_mutex_) = 0;  // serial number
  uint64_t ledger_rewinds_ ABSL_GUARDED_BY(ledger_mutex_) = 0;
  // Null: there is no error feedback. It is begun with the turn and the mutex;
  // its residuals are the pusher's.
  const std::unique_ptr<ErrorFeedback> feedback_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CLIENT_CORE_H_
