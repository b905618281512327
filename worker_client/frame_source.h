// Makes the frames of one push from the caller's memory. Apart from the streams
// so that each shard's stream only has to ask for its next frame.
#ifndef AGG_WORKER_CLIENT_FRAME_SOURCE_H_
#define AGG_WORKER_CLIENT_FRAME_SOURCE_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "worker_client/bound_views.h"
#include "worker_client/error_feedback.h"
#include "worker_client/frame_memory.h"
#include "worker_client/row_devices.h"
#include "worker_client/row_region.h"
#include "worker_client/shard_router.h"

namespace agg {

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
