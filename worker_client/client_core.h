// What AggClient does. Apart from agg_client.h because it needs gRPC and
// protobuf, which users of the client need not see.
#ifndef AGG_WORKER_CLIENT_CLIENT_CORE_H_
#define AGG_WORKER_CLIENT_CLIENT_CORE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/agg.pb.h"
#include "server/base/mutex.h"
#include "worker_client/client_types.h"
#include "worker_client/coordinator_session.h"
#include "worker_client/pull_stream.h"
#include "worker_client/row_pusher.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Joins the session with the coordinator and the streams of the shards. The
// methods are AggClient's, which states their contracts. Thread-safe.
class ClientCore {
 public:
  ClientCore(const ClientOptions& options,
             std::unique_ptr<CoordinatorSession> session, ShardRouter router);

  absl::StatusOr<RoundOutcome> Seed(absl::Span<const TensorView> parameters);
  absl::Status SeedOrPull(absl::Span<const MutableTensorView> parameters);
  absl::Status Push(absl::Span<const TensorView> gradient);
  absl::StatusOr<RoundOutcome> Commit(const PushInfo& info);
  // wait_for_seed: a pull that waits for version 0 ends when this worker gets
  // the seed role.
  absl::Status Pull(uint64_t version,
                    absl::Span<const MutableTensorView> parameters,
                    Precision precision, bool wait_for_seed = false);
  absl::StatusOr<uint64_t> PullLatest(
      absl::Span<const MutableTensorView> parameters, Precision precision);
  absl::StatusOr<RoundOutcome> Wait(uint64_t version);
  absl::StatusOr<RoundOutcome> PushPull(
      absl::Span<const TensorView> gradient, const PushInfo& info,
      absl::Span<const MutableTensorView> parameters);

  CoordinatorSession& session() { return *session_; }
  const v1::JoinReply& description() const { return session_->description(); }
  const ShardRouter& router() const { return router_; }
  const JobDescription& job() const { return job_; }
  uint64_t version() const { return version_; }

 private:
  // Whether a pull failed because newer versions replaced its version.
  bool IsGone(const absl::Status& status);
  // Until the round that publishes `version` >= 1 has ended: within
  // round_timeout, and no longer than the job.
  absl::Status AwaitRoundBefore(uint64_t version);
  // What this session has pushed last in a round (P5).
  struct Pushed {
    uint32_t attempt = 0;
    std::vector<uint32_t> row_crc32c;  // empty: not known
  };
  using PushKey = std::pair<v1::PushKind, uint64_t>;  // and the round
  // As many as the server keeps outcomes of.
  static constexpr size_t kMaxPushes = 16;

  // Another gradient of the round has another attempt; returns it.
  uint32_t BeginAttempt(const PushKey& key);
  // Nothing pushed: attempt 0.
  Pushed FindPushed(const PushKey& key) const;
  absl::Status PushAs(v1::PushKind kind, uint64_t round, DType dtype,
                      absl::Span<const TensorView> views);

  const ClientOptions options_;
  const std::unique_ptr<CoordinatorSession> session_;
  const ShardRouter router_;
  const JobDescription job_;
  PullSettings pull_;  // constant after the constructor

  std::atomic<uint64_t> version_;
  Mutex push_mutex_;
  std::unique_ptr<RowPusher> pusher_ ABSL_PT_GUARDED_BY(push_mutex_);
  // Not push_mutex_, which a Push holds until its end.
  mutable Mutex pushes_mutex_;
  std::map<PushKey, Pushed> pushes_ ABSL_GUARDED_BY(pushes_mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_CLIENT_CORE_H_
