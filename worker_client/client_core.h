// What AggClient does. Apart from agg_client.h because it needs gRPC and
// protobuf, which users of the client need not see. Rows are in client_core.cc,
// versions in client_pull.cc, the seed in client_seed.cc.
#ifndef AGG_WORKER_CLIENT_CLIENT_CORE_H_
#define AGG_WORKER_CLIENT_CLIENT_CORE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "worker_client/audit_log.h"
#include "worker_client/client_types.h"
#include "worker_client/coordinator_session.h"
#include "worker_client/job_view.h"
#include "worker_client/membership.h"
#include "worker_client/row_custody.h"
#include "worker_client/row_pusher.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Joins the membership, the coordinator's calls and the streams of the shards.
// The methods are AggClient's, which states their contracts. Thread-safe.
class ClientCore {
 public:
  ClientCore(const ClientOptions& options,
             std::unique_ptr<Membership> membership, ShardRouter router);

  absl::StatusOr<RoundOutcome> Seed(absl::Span<const TensorView> parameters);
  absl::Status SeedOrPull(absl::Span<const MutableTensorView> parameters);
  absl::Status Push(absl::Span<const TensorView> gradient);
  absl::StatusOr<RoundOutcome> Commit(const PushInfo& info);
  absl::Status Pull(uint64_t version,
                    absl::Span<const MutableTensorView> parameters,
                    Precision precision);
  absl::StatusOr<uint64_t> PullLatest(
      absl::Span<const MutableTensorView> parameters, Precision precision);
  absl::StatusOr<uint64_t> LatestVersion();
  absl::StatusOr<RoundOutcome> Wait(uint64_t version);
  absl::StatusOr<RoundOutcome> PushPull(
      absl::Span<const TensorView> gradient, const PushInfo& info,
      absl::Span<const MutableTensorView> parameters);
  absl::Status Leave();

  uint64_t version() const { return version_; }
  uint64_t session() const { return membership_->view()->session(); }
  bool seed_role() const { return membership_->view()->seed_role(); }
  bool finished() const { return membership_->finished(); }
  const ShardRouter& router() const { return router_; }
  const JobDescription& job() const { return job_; }

 private:
  using View = Membership::View;
  using Bound = std::vector<TensorView>;  // the caller's, in manifest order

  absl::StatusOr<Bound> BindRow(absl::Span<const TensorView> views,
                                DType dtype) const;
  // What the shards of another epoch still have is taken into account (P27).
  void CatchUp(const JobView& view);
  // Pushes `row` to the shards that lack it.
  absl::Status PushOwed(const View& view, const RowName& row,
                        const Bound& bound, DType dtype)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(push_mutex_);
  // Begins a gradient's row; all shards have it, or its round has ended.
  absl::StatusOr<RowName> PushRow(uint64_t round, const Bound& bound);
  // `gradient`: for shards that have lost the row; null: then DATA_LOSS.
  absl::StatusOr<RoundOutcome> CommitRow(const RowName& row,
                                         const PushInfo& info,
                                         const Bound* gradient);
  absl::StatusOr<RoundOutcome> CommitOnce(const View& view, const RowName& row,
                                          const PushInfo& info,
                                          const Bound* gradient,
                                          absl::Time deadline);
  absl::StatusOr<RoundOutcome> SeedOnce(const View& view, const Bound& bound,
                                        RowName* row, uint64_t* row_epoch);
  // Writes down what this worker knows of its row.
  void Audit(const RowName& row, const RoundOutcome& outcome);
  // The outcome if the worker goes on without its row's; else `status`.
  absl::StatusOr<RoundOutcome> Missed(const RowName& row,
                                      const absl::Status& status);
  // Pulls the outcome's version, or what has taken its place.
  absl::StatusOr<RoundOutcome> PullOutcome(
      RoundOutcome outcome, absl::Span<const MutableTensorView> parameters);
  // OK: `version` is there, or comes without this worker.
  absl::Status CheckAwaited(const JobView& view, uint64_t version) const;
  // Of the view's first round; ends when this worker gets the seed role.
  absl::Status PullFirst(absl::Span<const MutableTensorView> parameters);
  absl::Status PullOnce(const View& view, uint64_t version,
                        const std::vector<MutableTensorView>& bound,
                        Precision precision, absl::Time deadline,
                        bool wait_for_seed = false);
  // Whether a pull failed because newer versions replaced its version.
  bool IsGone(const absl::Status& status) const;

  const ClientOptions options_;
  const std::unique_ptr<Membership> membership_;
  CoordinatorSession session_;
  const ShardRouter router_;
  const JobDescription job_;
  AuditLog audit_;
  std::atomic<uint64_t> version_;
  Mutex push_mutex_;
  View pusher_view_ ABSL_GUARDED_BY(push_mutex_);  // outlives the pusher
  std::unique_ptr<RowPusher> pusher_ ABSL_GUARDED_BY(push_mutex_);
  mutable Mutex custody_mutex_;  // a Push holds push_mutex_ until its end
  RowCustody custody_ ABSL_GUARDED_BY(custody_mutex_);
  uint64_t custody_view_ ABSL_GUARDED_BY(custody_mutex_) = 0;  // serial number
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CLIENT_CORE_H_
