// A version on its way to one reader: frame after frame, unless its
// memory is wanted back.
#ifndef AGG_SERVER_RPC_VERSION_FLOW_H_
#define AGG_SERVER_RPC_VERSION_FLOW_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "server/base/mutex.h"
#include "server/params/snapshot.h"
#include "server/rpc/pull_frames.h"
#include "server/shard/published_version.h"
#include "server/shard/shard_engine.h"

namespace agg {

// Holds the snapshot until it is revoked, and has its frames lent the bytes
// (LendBytes): so it lets go whatever the reader does. Thread-compatible.
class VersionFlow {
 public:
  // What the stream is told, on any thread, perhaps before the constructor
  // returns and perhaps still while the destructor does, each at most once.
  struct Events {
    // ABORTED naming the current version: the stream ends with it, also for a
    // reader that does not read.
    std::function<void(const absl::Status&)> revoked;
    // Later (null: not): the version's memory gets other bytes, and frames of
    // the flow are not all with the reader. `cut`: the connection is to be
    // ended, since the frames may be the last ones, so that they are all of a
    // version to who does not look at the checksums, and no error follows; or
    // since they take memory that nobody has planned.
    std::function<void(bool cut)> overtaken = nullptr;
  };
  // `engine` outlives the flow, and the call of events.revoked.
  // `first_slices` as in PullFrames::Order; none in a PushAck, whose last frame
  // says so. kPlace, kDevicePlace: for a reader of shared memory; where the
  // version is not in it, kPullFrame. REQUIRES: version.snapshot->data(dtype)
  // != nullptr.
  VersionFlow(ShardEngine* engine, PullFrameCache* cache,
              const PublishedVersion& version, DType dtype, FrameForm form,
              absl::Span<const uint32_t> first_slices, Events events);
  ~VersionFlow();
  VersionFlow(const VersionFlow&) = delete;
  VersionFlow& operator=(const VersionFlow&) = delete;

  // Whether Next has given all frames.
  bool done() const {
    return next_ == (in_place() ? places_.size() : order_.size());
  }
  // Whether the next frame may be sent: of a version that is on its way not all
  // are there yet, and none while the snapshot cannot be read, nor once it is
  // revoked. REQUIRES: !done().
  bool ready() const;
  // Whether frames say where the version is: the reader is done with it when it
  // says so, not with the last frame.
  bool in_place() const { return !places_.empty(); }
  // Whether that is on a device: what the host has of it is not needed.
  bool on_device() const { return on_device_; }
  // The next frame; nothing: the version was revoked. Its bytes count as
  // pulled; those in place with the last frame. REQUIRES: ready(), but for
  // that.
  std::optional<grpc::ByteBuffer> Next();

 private:
  // Shared with the snapshot's readers, who may call later than the flow lives.
  struct Held {
    Mutex mutex;
    std::shared_ptr<const Snapshot> snapshot ABSL_GUARDED_BY(mutex);
    bool complete ABSL_GUARDED_BY(mutex) = false;  // all frames were given
  };
  std::shared_ptr<const Snapshot> snapshot() const;

  ShardEngine* const engine_;
  const PublishedVersion version_;  // its snapshot is held_'s
  const DType dtype_;
  const FrameForm form_;
  bool on_device_ = false;                      // places_ are
  const std::vector<grpc::ByteBuffer> places_;  // in place of frames_
  const std::shared_ptr<PullFrames> frames_;    // null in place
  const std::vector<size_t> order_;             // of the frames
  size_t next_ = 0;                             // in order_, or in places_
  const std::shared_ptr<SnapshotReaders> readers_;
  const std::shared_ptr<Held> held_ = std::make_shared<Held>();
  int64_t reader_id_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_RPC_VERSION_FLOW_H_
