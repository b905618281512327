// Another shard of the job, over gRPC: the coordinator's ShardPeer.
#ifndef AGG_SERVER_RPC_REMOTE_SHARD_PEER_H_
#define AGG_SERVER_RPC_REMOTE_SHARD_PEER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/agg.grpc.pb.h"
#include "server/base/mutex.h"
#include "server/round/shard_peer.h"

namespace agg {

struct RemoteShardOptions {
  int32_t ordinal = 1;
  int32_t num_shards = 2;
  std::string address;            // "host:port"
  std::string fingerprint;        // of the config; the shard must have the same
  uint64_t coordinator_life = 0;  // random bits of this process
  std::string coordinator;        // its address, for messages
  // Deadlines of the first AttachReply, and of SetSession and ForgetManifest.
  // What may take long has none (SetManifest, ReserveRow, RunPhase): the stream
  // that Attach holds open ends when the shard is gone (keepalive pings every
  // 10 s, answered within 5 s).
  absl::Duration attach_timeout = absl::Seconds(5);
  absl::Duration call_timeout = absl::Seconds(30);
};

// Errors are the shard's, with its name in front; UNAVAILABLE at once for all
// calls from the loss of the shard until the next Attach.
class RemoteShardPeer : public ShardPeer {
 public:
  explicit RemoteShardPeer(const RemoteShardOptions& options);
  // Cancels what runs; blocks until the stream's thread has ended.
  ~RemoteShardPeer() override;

  absl::Status Attach(uint64_t epoch,
                      std::function<void(absl::Status)> on_lost) override;
  void LetGo() override;
  void Lose(uint64_t epoch, const absl::Status& reason) override;
  absl::Status SetManifest(uint64_t epoch, const Manifest& manifest) override;
  absl::Status ForgetManifest(uint64_t epoch) override;
  absl::Status ReserveRow(uint64_t epoch, int32_t rank) override;
  absl::Status SetSession(uint64_t epoch, const SessionChange& change) override;
  absl::StatusOr<PhaseResult> RunPhase(const Phase& phase) override;
  void GiveUp(uint64_t epoch, const absl::Status& reason) override;
  absl::StatusOr<PhaseResult> StreamPhase(const Phase& phase,
                                          const GramSink& sink) override;
  std::string name() const override;

  // Ends the stream and every call with `reason`, now and later; idempotent.
  void Close(const absl::Status& reason);

 private:
  struct Link;  // one Attach stream

  // Runs `call` with a context that is cancelled when the shard is lost.
  absl::Status Call(
      absl::Duration timeout,
      const std::function<grpc::Status(grpc::ClientContext*)>& call);
  absl::Status Send(const v1::SetManifestRequest& request,
                    absl::Duration timeout);
  // The body of thread_: opens the stream and reads it until it ends.
  void HoldStream(const std::shared_ptr<Link>& link);
  // Waits for the first reply or the stream's end.
  absl::Status AwaitReply(const std::shared_ptr<Link>& link);
  // Ends the stream, if any, without on_lost, and its thread.
  void Detach() ABSL_EXCLUSIVE_LOCKS_REQUIRED(attach_mutex_);
  // Converts a status, with the shard's name in front of its message.
  absl::Status Named(const grpc::Status& status) const;
  // Why the shard is gone, from how its Attach call ended, and whether it has
  // said that it stops in good order.
  absl::Status LossReason(const grpc::Status& status, bool stopping) const;

  const RemoteShardOptions options_;
  const std::unique_ptr<v1::ShardControl::Stub> stub_;

  Mutex attach_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // one Attach at a time
  std::thread thread_ ABSL_GUARDED_BY(attach_mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<Link> link_ ABSL_GUARDED_BY(mutex_);  // null: none
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);           // OK: attached
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);         // OK: not closed
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_REMOTE_SHARD_PEER_H_
