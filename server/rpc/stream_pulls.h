// The versions that a Push stream brings (P41): one that is waited for, and
// those that are there, frame after frame.
#ifndef AGG_SERVER_RPC_STREAM_PULLS_H_
#define AGG_SERVER_RPC_STREAM_PULLS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "server/base/mutex.h"
#include "server/ingest/shard_layout.h"
#include "server/params/snapshot.h"
#include "server/shard/published_version.h"
#include "server/shard/shard_engine.h"

namespace agg {

// What a Pull asks for, as plain values. It is PullRequest of proto/agg.proto.
// Whether the shard keeps `dtype` is not checked: that depends on the version.
struct PullQuery {
  uint64_t epoch = 0;  // 0: any
  uint64_t version = 0;
  bool latest = false;  // the newest version, whatever `version` says
  DType dtype = DType::kF32;
  std::vector<uint32_t> first_slices;  // as they came; at most kMaxFirstSlices
  // The reader maps the version, if it can (P40). Nothing to a Push stream.
  bool in_place = false;
  // True, with in_place, if the reader maps a device's memory, too (P48).
  bool on_device = false;
};

// More of them are INVALID_ARGUMENT (P42).
inline constexpr int kMaxFirstSlices = 200;

// The Pull RPC carries raw bytes, so the request is parsed here.
// INVALID_ARGUMENT for bytes that are not a PullRequest and for a dtype that
// proto/agg.proto does not have.
absl::StatusOr<PullQuery> ParsePullQuery(const grpc::ByteBuffer& request);

// INVALID_ARGUMENT for a dtype as above.
absl::StatusOr<PullQuery> QueryOf(const v1::PullRequest& request);

// INVALID_ARGUMENT: the shard has no parameters in `dtype` (its number in
// proto/agg.proto).
absl::Status UnknownPullDType(int dtype);

// The frames of a Pull by who reads the version in shared memory (P40). There
// is at least one frame; none if the version is not in shared memory. The
// slices that `first_slices` names come first (P42), then the others,
// ascending; those of other shards, or of none, are passed over.
// `takes_device`: places on the device if float32 is asked for and the version
// is there, else in shared memory; *on_device says which.
std::vector<grpc::ByteBuffer> MakePlaceFrames(
    const PublishedVersion& version, DType dtype,
    absl::Span<const uint32_t> first_slices, bool takes_device,
    bool* on_device);

// What a frame is in: PullFrame, or PushAck (P41). kPlace: a PullFrame that
// says where the bytes are (P40), of which PullFrames knows nothing.
// kDevicePlace: the same, on a device if it is there (P48).
enum class FrameForm { kPullFrame, kPushAck, kPlace, kDevicePlace };

// Whether a reader of this form maps what it reads.
inline bool IsPlace(FrameForm form) {
  return form == FrameForm::kPlace || form == FrameForm::kDevicePlace;
}

// How one published version is cut into frames, shared by all its pulls. Each
// frame has one or more complete slices, up to kMaxFramePayloadBytes.
// There is at least one frame; a shard without slices sends it empty. Checksums
// and what else stands before a frame's payload are made once, by the first
// pull that gets there, and sent by all of them. This does not hold
// the snapshot, so that the cache below never keeps memory for which an update
// waits. Thread-safe.
class PullFrames {
 public:
  // REQUIRES: version.snapshot->data(dtype) != nullptr, and is readable when
  // MakeBuffer is called.
  PullFrames(const PublishedVersion& version, DType dtype);

  size_t num_frames() const { return frames_.size(); }
  int64_t payload_bytes(size_t frame) const { return frames_[frame].bytes; }
  // Position, among the shard's slices, behind the frame's last slice.
  size_t end_slice(size_t frame) const { return frames_[frame].end; }

  // All frames in the order in which a pull gets them: first those that hold
  // these slices, then the others, ascending. A slice of another shard, or of
  // none, has no effect.
  std::vector<size_t> Order(absl::Span<const uint32_t> first_slices) const;

  // A frame that points into the snapshot's memory, which lends it the bytes
  // until they are sent. REQUIRES: `version` is the one of the constructor;
  // !IsPlace(form).
  grpc::ByteBuffer MakeBuffer(size_t frame, const PublishedVersion& version,
                              FrameForm form);

  bool Matches(const PublishedVersion& version, DType dtype) const {
    return epoch_ == version.epoch && version_ == version.version &&
           dtype_ == dtype;
  }

 private:
  struct Frame {
    size_t first = 0;  // positions among the shard's slices
    size_t end = 0;
    int64_t bytes = 0;
    // Headers by form; guarded by the frame's once_ until they are made.
    grpc::Slice headers[2];
  };

  void MakeHeaders(absl::Span<const absl::string_view> pieces, size_t index);

  const uint64_t epoch_, version_;
  const DType dtype_;
  const std::shared_ptr<const ShardLayout> layout_;
  std::vector<Frame> frames_;
  std::unique_ptr<std::once_flag[]> once_;  // one per frame
};

// The PullFrames of the versions that are being pulled: at most four, the
// oldest makes room. Thread-safe.
class PullFrameCache {
 public:
  std::shared_ptr<PullFrames> Get(const PublishedVersion& version, DType dtype);

 private:
  static constexpr size_t kMaxEntries = 4;  // two versions in two dtypes
  Mutex mutex_;
  std::deque<std::shared_ptr<PullFrames>> entries_ ABSL_GUARDED_BY(mutex_);
};

// A version on its way to one reader: frame after frame, unless its memory is
// wanted back. Holds the snapshot until it is revoked, and has its frames lent
// the bytes (LendBytes): so it lets go whatever the reader does.
// Thread-compatible.
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
