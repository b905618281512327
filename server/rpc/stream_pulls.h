// The versions that a Push stream brings (P41): one that is waited for, and
// those that are there, frame after frame.
#ifndef AGG_SERVER_RPC_STREAM_PULLS_H_
#define AGG_SERVER_RPC_STREAM_PULLS_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "server/rpc/pull_frames.h"
#include "server/rpc/pull_query.h"
#include "server/rpc/version_flow.h"
#include "server/shard/published_version.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Thread-safe. Its owner is a stream, which calls Next and Written as its
// writes allow.
class StreamPulls : public std::enable_shared_from_this<StreamPulls> {
 public:
  // Called with no lock held, on any thread; they may outlive the stream.
  struct Stream {
    std::function<void()> wake;  // Next has a frame
    // The stream ends: a pull has failed, or what it brings is taken back, also
    // from a client that does not read.
    std::function<void(const absl::Status&)> end;
    // Called as VersionFlow::Events::overtaken; may be null.
    std::function<void(uint64_t version, bool cut)> overtaken = nullptr;
  };
  // Number of versions that may be there and not yet sent completely.
  static constexpr size_t kMaxFlows = 2;

  // `engine` and `cache` outlive it.
  StreamPulls(ShardEngine* engine, PullFrameCache* cache, Stream stream)
      : engine_(engine), cache_(cache), stream_(std::move(stream)) {}
  ~StreamPulls();

  // Asks for a version, also one that a pipelined round is writing, or joins
  // the pull that waits for it. FAILED_PRECONDITION: the stream waits for
  // another one. RESOURCE_EXHAUSTED: kMaxFlows versions are there and are not
  // being read.
  absl::Status Ask(const PullQuery& query);

  // The next frame; nothing: none is there. REQUIRES: all frames before it have
  // been written.
  std::optional<grpc::ByteBuffer> Next();
  // Notes that all frames that Next has given have been written.
  void Written();

 private:
  void OnVersion(const PullQuery& query,
                 const absl::StatusOr<PublishedVersion>& version);

  ShardEngine* const engine_;
  PullFrameCache* const cache_;
  const Stream stream_;
  Mutex mutex_;
  std::optional<PullQuery> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t pull_id_ ABSL_GUARDED_BY(mutex_) =
      0;  // the engine's, of the last one
  std::deque<std::unique_ptr<VersionFlow>> flows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_STREAM_PULLS_H_
