// A version on its way to one reader: frame after frame, unless its
// memory is wanted back.
#ifndef AGG_SERVER_RPC_VERSION_FLOW_H_
#define AGG_SERVER_RPC_VERSION_FLOW_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "server/rpc/pull_frames.h"
#include "server/shard/published_version.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Holds the snapshot for its lifetime. Thread-compatible.
class VersionFlow {
 public:
  // `engine` outlives the flow, and every call of `on_revoked`, which is called
  // at most once, on any thread, perhaps before the constructor returns and
  // perhaps still while the destructor does: with ABORTED naming the current
  // version. The reader is to let go of the flow and of its frames then.
  // `first_slices` as in PullFrames::Order; none in a PushAck, whose last frame
  // says so. kPlace, kDevicePlace: for a reader of shared memory; where the
  // version is not in it, kPullFrame. REQUIRES: version.snapshot->data(dtype)
  // != nullptr.
  VersionFlow(ShardEngine* engine, PullFrameCache* cache,
              const PublishedVersion& version, DType dtype, FrameForm form,
              absl::Span<const uint32_t> first_slices,
              std::function<void(const absl::Status&)> on_revoked);
  ~VersionFlow();
  VersionFlow(const VersionFlow&) = delete;
  VersionFlow& operator=(const VersionFlow&) = delete;

  // Whether Next has given all frames.
  bool done() const {
    return next_ == (in_place() ? places_.size() : order_.size());
  }
  // Whether the next frame may be sent: of a version that is on its way not all
  // are there yet. REQUIRES: !done().
  bool ready() const;
  // Whether frames say where the version is: the reader is done with it when it
  // says so, not with the last frame.
  bool in_place() const { return !places_.empty(); }
  // The next frame. Its bytes count as pulled; those in place with the last
  // frame. REQUIRES: ready().
  grpc::ByteBuffer Next();

 private:
  ShardEngine* const engine_;
  const PublishedVersion version_;
  const DType dtype_;
  const FrameForm form_;
  bool on_device_ = false;                      // places_ are
  const std::vector<grpc::ByteBuffer> places_;  // in place of frames_
  const std::shared_ptr<PullFrames> frames_;    // null in place
  const std::vector<size_t> order_;             // of the frames
  size_t next_ = 0;                             // in order_, or in places_
  int64_t revoke_id_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_VERSION_FLOW_H_
