// Another shard of the job, over gRPC: the coordinator's ShardPeer.
#ifndef AGG_SERVER_RPC_REMOTE_SHARD_PEER_H_
#define AGG_SERVER_RPC_REMOTE_SHARD_PEER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/control.grpc.pb.h"
#include "proto/tls_options.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"
#include "server/rpc/phase_conversion.h"
#include "server/rpc/shard_link.h"

namespace agg {

// How a shard in another process is called.
struct RemoteShardOptions {
  int32_t ordinal = 1;
  int32_t num_shards = 2;
  std::string address;            // "host:port"
  TlsOptions tls = {};            // to call it with
  std::string fingerprint;        // of the config; the shard must have the same
  uint64_t coordinator_life = 0;  // random bits of this process
  std::string coordinator;        // its address, for messages
  // Deadlines of Promise and the first AttachReply, and of set_session,
  // set_facts, get_manifest and forget_manifest. What may take long has none
  // (other phases): the stream that Attach holds open ends when the shard is
  // gone (keepalive pings every 10 s, answered within 5 s).
  absl::Duration attach_timeout = absl::Seconds(5);
  absl::Duration call_timeout = absl::Seconds(30);
  // Limit of checkpoint_progress and seal: a disk that hangs fails the
  // checkpoint.
  absl::Duration file_timeout = absl::Minutes(10);
  int64_t max_reply_bytes = kMaxPhaseBytes;  // of an answer to a phase, kept
  // Measures how long a broken connection is waited for (P24).
  const Clock* clock = TickClock::Real();
  // What this process presents itself with, asked for each call (P45); null:
  // nothing.
  std::function<std::string()> token = {};
};

// Errors are the shard's, with its name in front (NamedAnswer); UNAVAILABLE at
// once for all calls from the loss of the shard until the next Attach. A call
// that meets a broken connection waits until it is back, and is made again.
// Promise alone needs no Attach, and is made once.
class RemoteShardPeer : public ShardPeer {
 public:
  explicit RemoteShardPeer(const RemoteShardOptions& options);
  // Cancels what runs; blocks until the stream's thread has ended.
  ~RemoteShardPeer() override;

  // Sets what is sent with each Attach: all addresses by ordinal. Before the
  // first one; else the shard looks for its neighbours in its own
  // configuration.
  void SetShards(std::vector<std::string> shards);
  absl::StatusOr<uint64_t> Promise() override;
  absl::StatusOr<ShardInventory> Attach(
      uint64_t epoch, std::function<void(absl::Status)> on_lost) override;
  void LetGo() override;
  void SetOnDraining(std::function<void(uint64_t)> on_draining) override;
  void SetOnComplete(OnComplete on_complete) override;
  void SetOnOffer(OnOffer on_offer) override;
  void Lose(uint64_t epoch, const absl::Status& reason) override;
  absl::StatusOr<PhaseResult> RunPhase(const Phase& phase) override;
  void GiveUp(uint64_t epoch, const absl::Status& reason) override;
  // Number that the shard has told last.
  uint64_t Progress() const override { return progress_.load(); }
  absl::StatusOr<PhaseResult> StreamPhase(const Phase& phase,
                                          const GramSink& sink) override;
  std::string name() const override;

  // Ends the epoch and every call with `reason`, now and later; idempotent.
  void Close(const absl::Status& reason);

 private:
  using GrpcCall = std::function<grpc::Status(grpc::ClientContext*)>;

  // Runs `call` with a context that is cancelled when the shard is lost, and
  // again if the connection was broken and is back.
  absl::Status Call(absl::Duration timeout, const GrpcCall& call);
  // Runs `call` once, in the epoch of `link` (null: any); true if an answer may
  // be lost.
  bool CallOnce(const ShardLink* link, absl::Duration timeout,
                const GrpcCall& call, absl::Status* status);
  v1::AttachRequest FirstRequest(uint64_t epoch) const;
  ShardLinkOptions LinkOptions(uint64_t epoch) const;
  void CancelCalls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the link, if any, without on_lost.
  void Detach(const absl::Status& reason, bool tell)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(attach_mutex_);
  std::shared_ptr<ShardLink> link() const;
  absl::Status Refusal(const ShardLink* link) const;
  absl::Status RefusalLocked(const ShardLink* link) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration TimeoutOf(PhaseKind kind) const;
  // A status of gRPC, with the shard's name in front.
  absl::Status Named(const grpc::Status& status) const;

  const RemoteShardOptions options_;
  const std::unique_ptr<v1::ShardControl::Stub> stub_;
  std::vector<std::string> shards_;            // set before the first Attach
  std::function<void(uint64_t)> on_draining_;  // set before the first Attach
  OnComplete on_complete_;                     // the same
  OnOffer on_offer_;                           // the same

  mutable std::atomic<uint64_t> progress_{0};  // written by the link's thread

  Mutex attach_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);  // one Attach at a time

  mutable Mutex mutex_;
  std::shared_ptr<ShardLink> link_ ABSL_GUARDED_BY(mutex_);  // null: none
  absl::Status detached_ ABSL_GUARDED_BY(mutex_);  // why there is none
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);    // OK: not closed
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_REMOTE_SHARD_PEER_H_
