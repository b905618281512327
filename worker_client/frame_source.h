// Makes the frames of one push from the caller's memory. Apart from the streams
// so that each shard's stream only has to ask for its next frame.
#ifndef AGG_WORKER_CLIENT_FRAME_SOURCE_H_
#define AGG_WORKER_CLIENT_FRAME_SOURCE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "server/base/mutex.h"
#include "worker_client/client_types.h"
#include "worker_client/device_row.h"
#include "worker_client/row_encoding.h"
#include "worker_client/row_ledger.h"
#include "worker_client/shard_regions.h"
#include "worker_client/shard_router.h"
#include "worker_client/tensor_devices.h"

namespace agg {

// The memory of frames that gRPC may still read. Keeps the buffers for narrowed
// rows, and counts the frames whose bytes gRPC may still read. Reused from push
// to push. Thread-safe.
class FrameMemory : public std::enable_shared_from_this<FrameMemory> {
 public:
  // The owner of one frame's bytes: counts the frame until it is released,
  // and then takes `staging` back.
  std::shared_ptr<const void> Hold(
      std::unique_ptr<std::vector<uint16_t>> staging);

  // A buffer for a frame: a released one, or a new one. Contents: undefined.
  std::unique_ptr<std::vector<uint16_t>> TakeStaging();

  int64_t frames_in_use() const;

 private:
  void Release(std::unique_ptr<std::vector<uint16_t>> staging);

  mutable Mutex mutex_;
  int64_t frames_in_use_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<std::vector<uint16_t>>> free_
      ABSL_GUARDED_BY(mutex_);
};

// The message that commits a row, but for the epoch, the session, the row's
// sums, the tensors that it lacks and the traceparent.
v1::CommitRequest CommitOf(const RowName& row, const PushInfo& info);

// The frames of one push to one shard, which may grow while they are sent. A
// tensor of the host that already has the push dtype is sent from where it
// lies; other tensors are copied or rounded into staging. May make a frame
// several times (for retries): the same bytes. Thread-compatible.
class FrameSource {
 public:
  // Makes a source that has no frames yet. `meta` has all fields except slices
  // and checksums. REQUIRES: router, the bound views and their memory outlive
  // this and every frame. `feedback`: for what is rounded; null: none; else it
  // outlives this. `region`, for which Begin was true: slices are written
  // there, and frames only name them (P39, P47); null: frames bring them; else
  // it outlives this.
  FrameSource(const ShardRouter* router, const BoundRow& bound, int shard,
              v1::FrameMeta meta, DType dtype,
              std::shared_ptr<FrameMemory> memory,
              ErrorFeedback* feedback = nullptr, RowRegion* region = nullptr);

  // Waits for the copies to a device that were begun.
  ~FrameSource();
  FrameSource(const FrameSource&) = delete;
  FrameSource& operator=(const FrameSource&) = delete;

  int64_t max_frame_bytes() const;  // of several slices in a frame
  // Adds frames of tensors that GrowingRow::Take has given. Begins their
  // copies, if the row lies on a device: Make waits for those of its frame
  // alone. After one that failed, frames that are made go by way of the row's
  // host side.
  void Add(std::vector<FramePlan> plans);

  int num_frames() const { return static_cast<int>(plans_.size()); }
  // Makes a frame. INTERNAL: a copy from a device to the host has failed. From
  // then on this is every frame's end, and status().
  absl::StatusOr<grpc::ByteBuffer> Make(int frame);
  const absl::Status& status() const { return status_; }

  // Computes the sums of the only frame, which the next Make uses. Errors as
  // Make's. REQUIRES: num_frames() is 1.
  absl::Status Prepare();
  // Sets what the last frame has besides (P41), or the first (P43); may be
  // null.
  void SetRequests(const v1::CommitRequest* commit, const v1::PullRequest* pull,
                   bool with_first) {
    commit_ = commit;
    pull_ = pull;
    requests_first_ = with_first;
  }

  // Returns CommitRequest.row_crc32c for this shard; nothing before frames with
  // all of its slices were made at least once.
  absl::optional<uint32_t> row_crc32c() const;

 private:
  // A frame without its head.
  struct Body {
    v1::FrameMeta meta;
    std::vector<absl::string_view> payload;
    std::shared_ptr<const void> owner;
  };
  absl::StatusOr<Body> MakeBody(int frame);
  absl::StatusOr<Body> MakeInPlace(int frame);
  // Returns a slice's bytes as they are sent: in place, or copied or rounded to
  // `staging`'s end.
  absl::StatusOr<absl::string_view> Payload(
      int32_t index, std::vector<uint16_t>* staging) const;
  bool NeedsStaging(const FramePlan& plan) const;
  absl::Status WriteInPlace(int frame);
  // Ends the frames with `status`; the first error stays.
  void Fail(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }
  // Lets the row go on by way of its host side.
  void LeaveDevice();

  const ShardRouter* router_;
  const int shard_;
  const BoundRow bound_;
  v1::FrameMeta meta_;
  DType dtype_;
  std::shared_ptr<FrameMemory> memory_;
  ErrorFeedback* feedback_;
  RowRegion* region_;
  absl::Status status_;
  std::vector<FramePlan> plans_;
  // Copies of the frames to a device, as far as they were not waited for.
  std::vector<RowDevices::Copies> copied_;
  absl::optional<Body> prepared_;  // of frame 0
  const v1::CommitRequest* commit_ = nullptr;
  const v1::PullRequest* pull_ = nullptr;
  bool requests_first_ = false;
  // The checksums of the slices of frames that were made, 0 for absent ones.
  absl::flat_hash_map<int32_t, uint32_t> crc32c_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_FRAME_SOURCE_H_
