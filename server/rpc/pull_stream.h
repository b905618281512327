// The reactor of one Pull: waits for the version, then streams its frames.
#ifndef AGG_SERVER_RPC_PULL_STREAM_H_
#define AGG_SERVER_RPC_PULL_STREAM_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/dtype.h"
#include "server/base/mutex.h"
#include "server/rpc/connection_listener.h"
#include "server/rpc/long_poll.h"
#include "server/rpc/stream_pulls.h"
#include "server/shard/published_version.h"
#include "server/shard/shard_engine.h"

namespace agg {

// States, and the calls that lead from one to the next:
//
//   waiting  --OnReadable->  writing  --OnWriteDone, each frame but the last-,
//      |                      |    ^_____________________________________|
//      |                      |
//      '--End-->  finished  <-'--the last frame, or OnWriteDone after End
//                     ^----End-- holding, after the last frame that says where
//                                the version is: it stays until the reader, who
//                                maps it, cancels the call (P40)
//
// gRPC calls OnWriteDone, OnCancel and OnDone. The engine calls OnVersion once,
// on any thread, and the snapshot then OnReadable. The snapshot's revocation
// calls End, on any thread and at any time: then the call ends with ABORTED
// naming the current version, even if the client has stopped reading. gRPC is
// called with no lock held, and with one operation in flight. The stream owns
// itself until OnDone; callbacks that may come later hold a weak_ptr.
class PullStream : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                   public std::enable_shared_from_this<PullStream> {
 public:
  // `engine` and `cache` outlive the gRPC server.
  // `overtaken` hears of a version that the client did not read in time; null:
  // nobody does. `who`: the caller, for people.
  static PullStream* Start(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer& request,
      ShardEngine* engine, PullFrameCache* cache,
      std::shared_ptr<OvertakenReaders> overtaken = nullptr,
      const std::string& who = "a pull");
  ~PullStream() override;

 private:
  enum class State { kWaiting, kWriting, kHolding, kFinished };

  PullStream(grpc::CallbackServerContext* context, ShardEngine* engine,
             PullFrameCache* cache);

  void Ask(const PullQuery& query);
  void OnVersion(absl::StatusOr<PublishedVersion> version);
  void OnReadable(const absl::Status& status);
  VersionFlow::Events Events(uint64_t version);
  void WriteNext();
  // The first reason counts; after the last frame there is no other end.
  void End(const absl::Status& reason);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  ShardEngine* const engine_;
  PullFrameCache* const cache_;
  const std::shared_ptr<CallCanceller> canceller_;
  std::shared_ptr<PullStream> self_;

  // Set by Start, before anything can end the stream.
  DType dtype_ = DType::kF32;
  std::vector<uint32_t> first_slices_;
  FrameForm form_ = FrameForm::kPullFrame;
  std::shared_ptr<OvertakenReaders> overtaken_;
  OvertakenReaders::Reader reader_;
  int64_t pull_id_ = 0;  // 0: the engine has answered at once

  // Used by OnVersion, then OnReadable, then by one OnWriteDone after the
  // other.
  std::unique_ptr<VersionFlow> flow_;
  grpc::ByteBuffer buffer_;  // in flight

  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kWaiting;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // OK: End was not called
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_PULL_STREAM_H_
