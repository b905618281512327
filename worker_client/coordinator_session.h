// A client's dealings with the coordinator: everything but rows and versions.
#ifndef AGG_WORKER_CLIENT_COORDINATOR_SESSION_H_
#define AGG_WORKER_CLIENT_COORDINATOR_SESSION_H_

#include <grpcpp/channel.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/agg.grpc.pb.h"
#include "server/base/mutex.h"
#include "worker_client/cancel_source.h"
#include "worker_client/client_types.h"
#include "worker_client/lease_keeper.h"
#include "worker_client/rpc_status.h"

namespace agg {

// One session, from Join (or Observe) to Leave. Calls are idempotent and
// retried by themselves while a broken connection may recover. Thread-safe.
class CoordinatorSession {
 public:
  // Waits for the coordinator up to options.connect_timeout.
  static absl::StatusOr<std::unique_ptr<CoordinatorSession>> Open(
      const ClientOptions& options);

  // Leaves, if a worker has not.
  ~CoordinatorSession();

  // The coordinator's answer to Join or Observe.
  const v1::JoinReply& description() const { return description_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Cancelled when the session or the job is over; for all calls.
  CancelSource* fate() { return &fate_; }
  // Cancelled when this worker gets the seed role; for waiting for the seed.
  CancelSource* seed_wait() { return &seed_wait_; }

  bool seed_role() const { return !seed_wait_.status().ok(); }
  bool finished() const { return finished_; }
  // Whether this client has heard that `version` is published.
  bool published(uint64_t version) const { return version < num_published_; }

  // The error of a call to any shard, as it came; or, if it says that a shard
  // cannot be reached and the coordinator had said that it shuts down, that.
  absl::Status Explain(const absl::Status& status) const;

  // Fills in epoch and session. `traceparent` as in PushInfo.
  absl::StatusOr<RoundOutcome> Commit(v1::CommitRequest request,
                                      const std::string& traceparent = "");
  // `attempt`: which push of the round `included` tells about.
  absl::StatusOr<RoundOutcome> WaitRound(uint64_t round, uint32_t attempt);
  // The job's newest version; FAILED_PRECONDITION while it has none.
  absl::StatusOr<uint64_t> LatestVersion();
  // CANCELLED is the session's fate from here on. Again: OK at once.
  absl::Status Leave();

 private:
  CoordinatorSession(const ClientOptions& options,
                     std::shared_ptr<grpc::Channel> channel);

  void Attend();
  void OnEvent(const v1::JobEvent& event);
  // Why the event ends the session, or OK if it does not.
  absl::Status FateBy(const v1::JobEvent& event) const;

  void NotePublished(uint64_t version);
  // Until the channel is connected; at most until `until`, or fate() ends it.
  absl::Status AwaitConnection(absl::Time until);
  // Makes a call named `name`, again after connection losses.
  absl::Status Call(
      absl::string_view name, absl::Time deadline,
      const std::function<grpc::Status(grpc::ClientContext*)>& call);

  const ClientOptions options_;
  const ShardName name_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Coordinator::Stub> stub_;
  v1::JoinReply description_;  // constant after Open

  CancelSource fate_;
  CancelSource seed_wait_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> finished_{false};
  std::atomic<bool> left_{false};
  std::atomic<uint64_t> num_published_{0};  // the newest known version + 1
  Mutex keeper_mutex_;
  std::unique_ptr<LeaseKeeper> keeper_ ABSL_GUARDED_BY(keeper_mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_COORDINATOR_SESSION_H_
