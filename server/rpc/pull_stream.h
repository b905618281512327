// One Pull: waits for the version, then streams its frames.
#ifndef AGG_SERVER_RPC_PULL_STREAM_H_
#define AGG_SERVER_RPC_PULL_STREAM_H_

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/agg.pb.h"
#include "server/base/mutex.h"
#include "server/rpc/pull_frames.h"
#include "server/shard/shard_engine.h"

namespace agg {

// A reference on a call, by which it can be ended from any thread and at any
// time, with a status that still reaches the client.
class CallCanceller {
 public:
  explicit CallCanceller(grpc::CallbackServerContext* context);
  ~CallCanceller();
  CallCanceller(const CallCanceller&) = delete;
  CallCanceller& operator=(const CallCanceller&) = delete;

  // Drops what is queued on the call, releasing its memory; thread-safe.
  void Cancel(const absl::Status& status);

 private:
  grpc_call* const call_;
};

// Owns itself until OnDone. When the snapshot is revoked the call ends with
// ABORTED naming the current version, even if the client has stopped reading.
class PullReactor : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                    public std::enable_shared_from_this<PullReactor> {
 public:
  // `engine` and `cache` outlive the gRPC server.
  static PullReactor* Start(grpc::CallbackServerContext* context,
                            const grpc::ByteBuffer& request,
                            ShardEngine* engine, PullFrameCache* cache);
  ~PullReactor() override;

 private:
  PullReactor(grpc::CallbackServerContext* context, ShardEngine* engine,
              PullFrameCache* cache);

  void Ask(const v1::PullRequest& request);
  // The engine's answer; once.
  void OnVersion(absl::StatusOr<PublishedVersion> version);
  void WatchRevocation();
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void End(const absl::Status& status);
  // Starts the next write, or the finish, unless one is in flight.
  void Pump();
  void Write(size_t frame);

  ShardEngine* const engine_;
  PullFrameCache* const cache_;
  const std::shared_ptr<CallCanceller> canceller_;
  DType dtype_ = DType::kF32;
  PublishedVersion version_;  // set before frames_
  int64_t revoke_id_ = 0;     // 0: not watched
  grpc::ByteBuffer buffer_;   // the frame in flight
  std::shared_ptr<PullReactor> self_;

  Mutex mutex_;
  int64_t pull_id_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: not known yet
  std::shared_ptr<PullFrames> frames_ ABSL_GUARDED_BY(mutex_);
  size_t next_frame_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;     // before the last frame
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // gRPC has the status
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_PULL_STREAM_H_
