// NeighbourPeer for a shard in another process, over Replicate and Fetch of the
// ShardControl service.
#ifndef AGG_SERVER_RPC_REMOTE_NEIGHBOUR_PEER_H_
#define AGG_SERVER_RPC_REMOTE_NEIGHBOUR_PEER_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/tls_options.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/round/neighbour_peer.h"
#include "server/rpc/copy_streams.h"

namespace agg {

// A streaming call to another shard in which no wait lasts for ever (P31).
// Blocks as gRPC's synchronous calls do, but ends the call when one operation
// takes longer than `stall` by `clock`, or the connection longer than
// kResumeTime. One write goes on while its caller makes the next message. After
// a false the call is over: Finish says why. Used by one thread at a time.
class WatchedCall {
 public:
  // Begins the call, which holds the stub's channel. `clock` outlives it.
  WatchedCall(grpc::GenericStub* stub, const std::string& method,
              const Clock* clock, absl::Duration stall);
  // Cancels it, unless it is finished.
  ~WatchedCall();
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

  // Waits until the message before has gone, and sends this one.
  bool Write(const grpc::ByteBuffer& message);
  // Waits until all messages have gone, and says that no more come.
  bool WritesDone();
  // The other side's next message.
  bool Read(grpc::ByteBuffer* message);
  // The call's end; the other side's messages have been read, or it is
  // cancelled. Once, and last.
  grpc::Status Finish();
  void Cancel() { context_.TryCancel(); }

  // How long nothing moved, if that is why it was ended; else 0.
  absl::Duration stalled_for() const { return stalled_for_; }
  // Whether, after Finish, the other side has ended it, and no broken
  // connection.
  bool answered() const;

 private:
  // Waits for the operation under way, if any. Whether it went well.
  bool Await();

  const Clock* const clock_;
  const absl::Duration stall_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  bool pending_ = false;  // an operation is under way
  bool finished_ = false;
  bool connected_ = false;
  absl::Duration stalled_for_ = absl::ZeroDuration();
};

struct RemoteNeighbourOptions {
  int32_t self = 0;     // ordinal of this process's shard, for messages
  int32_t ordinal = 1;  // of the neighbour
  std::string address;  // "host:port" of the neighbour, at first
  TlsOptions tls = {};  // to call it with
  // Limit of a call's time without anything sent or received (P31).
  absl::Duration stall_timeout = absl::Seconds(30);
  const Clock* clock = TickClock::Real();
  // What this process presents itself with, asked for each call (P45); null:
  // nothing.
  std::function<std::string()> token = {};
};

// Does not connect before the first call. A round's slices go over one call,
// which FinishCombined ends; at most two frames of 4 MiB are on their way. A
// call that has failed is not made again: the next SendCombined begins a new
// one. The neighbour's own errors have its name in front.
class RemoteNeighbourPeer : public NeighbourPeer {
 public:
  explicit RemoteNeighbourPeer(const RemoteNeighbourOptions& options);
  // REQUIRES: no call runs.
  ~RemoteNeighbourPeer() override;

  // Makes calls from now on go there; those that run go on.
  void SetAddress(const std::string& address);

  absl::Status SendCombined(const CopyHeader& header,
                            const CopySlice& slice) override;
  absl::Status FinishCombined(const CopyHeader& header) override;
  absl::Status Fetch(const CopyHeader& header, const CopySink& sink) override;

 private:
  // The call of one round.
  struct Replication {
    explicit Replication(const CopyHeader& round)
        : header(round), frames(round) {}

    const CopyHeader header;
    CopyFrameBuilder frames;
    std::unique_ptr<WatchedCall> call;
  };

  std::string name() const;
  std::unique_ptr<WatchedCall> NewCall(const char* method);
  // Makes a call for `header` if there is none.
  void BeginRound(const CopyHeader& header)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(send_mutex_);
  absl::Status SendFrame(bool last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(send_mutex_);
  // Why a call has failed; OK if it has not.
  absl::Status End(WatchedCall* call) const;
  absl::Status ReadAll(const CopyHeader& header, const CopySink& sink,
                       WatchedCall* call);

  const RemoteNeighbourOptions options_;

  mutable Mutex address_mutex_;
  std::string address_ ABSL_GUARDED_BY(address_mutex_);
  std::shared_ptr<grpc::GenericStub> stub_ ABSL_GUARDED_BY(address_mutex_);

  Mutex send_mutex_;
  std::unique_ptr<Replication> round_ ABSL_GUARDED_BY(send_mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_REMOTE_NEIGHBOUR_PEER_H_
