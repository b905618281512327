// The Attach stream that the coordinator holds open to a shard in one epoch,
// and those that follow it when the connection has broken (P24).
#ifndef AGG_SERVER_RPC_SHARD_LINK_H_
#define AGG_SERVER_RPC_SHARD_LINK_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/call_token.h"
#include "proto/control.grpc.pb.h"
#include "proto/tls_options.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/shard_peer.h"

namespace agg {

// Makes a channel to another shard, with what it takes to notice within seconds
// that it is gone, or is there again. `address`: "host:port". Does not connect
// yet. `token` (may be null) gives what each call presents
// (proto/call_token.h).
std::shared_ptr<grpc::Channel> MakePeerChannel(const std::string& address,
                                               const TlsOptions& tls,
                                               const CallToken& token);

// `status`, and why there is no connection, if that is the reason and it can be
// found (server/tls/tls_diagnosis.h). May take a second then. As it is without
// TLS.
absl::Status Explained(const absl::Status& status, const std::string& address,
                       const TlsOptions& tls);

// An error that the shard `name` has answered, with its name in front. That it
// refuses the caller, which is `self`, is UNAVAILABLE: passed on as it is, a
// worker would take it for the answer to its own credential. OK stays OK.
absl::Status NamedAnswer(const std::string& name, const std::string& self,
                         const absl::Status& status);

// Time that a broken connection is waited for (P24), by the clock of the
// process that waits (P31), at both ends.
inline constexpr absl::Duration kResumeTime = absl::Seconds(5);

// Marks a call, at its beginning: its end will say that it comes from the
// shard. A status code does not say so, since gRPC makes UNAVAILABLE of a
// broken connection, too.
void MarkAnswered(grpc::CallbackServerContext* context);
// Whether a call that has ended was ended by the shard.
bool IsAnswered(const grpc::ClientContext& context);

struct ShardLinkOptions {
  std::string name;              // of the shard, for messages
  v1::AttachRequest request;     // the first stream's
  absl::Duration open_timeout;   // of its answer
  const Clock* clock = nullptr;  // outlives the link; see P31
  // The shard waits to be let go (P35); may be null. Called on a thread of the
  // link with no lock held, perhaps more than once.
  std::function<void()> on_draining;
  // The shard has these rows completely (P41), and offers a close before (P44);
  // the same.
  std::function<void(const std::vector<CompleteRow>&)> on_complete;
  std::function<void(std::shared_ptr<const CloseOffer>)> on_offer;
  // A phase makes progress there (ShardPeer::Progress); the same.
  std::function<void(uint64_t)> on_progress;
};

// Being opened, then up and broken in turns, then over. Thread-safe, except as
// said.
class ShardLink {
 public:
  // `stub` outlives it. `on_lost` is called at most once, on a thread of the
  // link with no lock held: the shard is gone.
  ShardLink(v1::ShardControl::Stub* stub, const ShardLinkOptions& options,
            std::function<void(const absl::Status&)> on_lost);
  // REQUIRES: not called on the link's own thread, nor is Join.
  ~ShardLink();

  // Waits for the shard's first answer. Once, before Join. UNAVAILABLE when
  // there is none in time, or the shard's refusal.
  absl::StatusOr<v1::AttachReply> Open();
  // The number of the stream that is up; waits while the connection is broken.
  // Why the link is over, if it is.
  absl::StatusOr<int64_t> AwaitUp();
  // Whether a later stream than `number` is up. Waits for it or the link's end;
  // for kResumeTime, if stream `number` does not end at all.
  bool AwaitNext(int64_t number);
  absl::Status over() const;  // OK: not over

  // Sends the shard the reason why the epoch is over. Best effort.
  void Tell(const absl::Status& reason);
  // The link is over; on_lost is not called any more, unless it already runs.
  // The shard is sent the reason if `tell`, and then it ends the stream; else
  // the stream is cancelled.
  void End(const absl::Status& reason, bool tell);
  // Waits, after End, for the threads. A shard that was told gets a second to
  // end the stream. By one thread at a time.
  void Join();

  uint64_t epoch() const { return options_.request.epoch(); }

 private:
  struct Stream;

  // The body of thread_: one stream after the other.
  void Hold();
  void Read(Stream* stream, const v1::AttachRequest& request);
  void TakeReply(Stream* stream, const v1::AttachReply& reply);
  // Cancels a stream that resumes and takes too long for it.
  void AwaitEnd(Stream* stream);
  // Judges a stream that has ended: OK if another one is to be tried, else why
  // not.
  absl::Status Judge(const Stream& stream);
  absl::Status LossReason(const Stream& stream) const;
  bool overdue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Write(Stream* stream, const v1::AttachRequest& request,
                    bool last);
  v1::AttachRequest LostRequest(const absl::Status& reason) const;

  v1::ShardControl::Stub* const stub_;
  const ShardLinkOptions options_;
  const std::function<void(const absl::Status&)> on_lost_;
  std::thread thread_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mutex_);  // the newest
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  v1::AttachReply first_reply_ ABSL_GUARDED_BY(mutex_);  // once opened
  bool up_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t number_ ABSL_GUARDED_BY(mutex_) = 0;  // of streams that were up
  uint64_t life_ ABSL_GUARDED_BY(mutex_) = 0;   // of the shard
  absl::Time broken_at_ ABSL_GUARDED_BY(mutex_);
  absl::Status cause_ ABSL_GUARDED_BY(mutex_);  // of the last break
  absl::Status over_ ABSL_GUARDED_BY(mutex_);   // OK: not over
  bool done_ ABSL_GUARDED_BY(mutex_) = false;   // Hold has returned
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_SHARD_LINK_H_
