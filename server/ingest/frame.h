// One data frame on its way into a row, as plain values: its header, where each
// slice's bytes go, and what to answer. The words between a transport and a
// shard, so that neither knows the other's types.
#ifndef AGG_SERVER_INGEST_FRAME_H_
#define AGG_SERVER_INGEST_FRAME_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/dtype.h"
#include "server/ingest/shard_layout.h"

namespace agg {

class Buffer;  // kernels/buffer.h

enum class PushKind : uint8_t { kGradient = 0, kSeed = 1 };

// FrameMeta of proto/agg.proto as received. Only the enums are checked; the
// rest is for CheckFrame.
struct FrameHeader {
  uint64_t epoch = 0;
  uint64_t session = 0;
  uint64_t round = 0;
  uint32_t attempt = 0;  // of the session in the round
  PushKind kind = PushKind::kGradient;
  DType dtype = DType::kF32;
  std::vector<uint32_t> slices;
  std::vector<uint32_t> crc32c;
  std::vector<uint32_t> absent_slices;
  int64_t payload_bytes = 0;
  // The bytes are in the session's region already (P39): no payload, and no
  // checksums.
  bool in_place = false;
  // True, with in_place, if they are in the device's side of that region (P47).
  bool on_device = false;
};

// Where one slice's bytes lie.
struct SlicePlace {
  char* elements = nullptr;
  char* scales = nullptr;  // of int8 alone
};

// What to do with one slice's payload bytes, in the frame's order.
struct SliceLanding {
  int32_t slice = 0;
  char* destination = nullptr;  // null: skip the bytes
  int64_t num_bytes = 0;
  // int8: the first so many of num_bytes are scales, and go there; the others,
  // the elements, go to `destination`.
  int64_t scale_bytes = 0;
  char* scale_destination = nullptr;
  uint32_t crc32c = 0;  // expected; 0 for what is in place
  bool landed = false;  // set by the caller: copied, and the checksum matched
};

// A frame's claims on landing memory, from BeginFrame to EndFrame of
// server/shard/shard_engine.h.
struct FrameLanding {
  FrameHeader header;
  int32_t rank = -1;
  std::vector<SliceLanding> slices;
  bool closed = false;  // the round was closed before: all bytes are skipped
  // Absent slices (positions in the layout) that this frame claimed, zeroed.
  std::vector<int32_t> absent;
  std::shared_ptr<const void> owner;  // whose row it is
  std::shared_ptr<const Buffer> row;  // that has the destinations
};

// What to answer after a frame.
struct FrameResult {
  bool acknowledge = false;  // all slices of this shard have landed, or closed
  bool closed = false;       // the round was closed before: bytes dropped
  // True if all rows that the open round waits for are complete on this shard.
  bool round_complete = false;
  // True if they are not, and the coordinator need not hear of this row before
  // (P44).
  bool more = false;
  // Number of the row's first waves that are complete, in a pipelined job, if
  // there is news; else 0.
  int32_t waves = 0;
};

// Whether a frame fits the job: a pure function of its header, which runs
// before anything is claimed or copied.
// INVALID_ARGUMENT naming the field, its value and what is allowed, if
// - there is no slice, or slices do not ascend, do not exist, or are on another
//   shard;
// - the number of checksums is not that of the slices, or not 0 of a frame in
//   place;
// - a frame in place is a seed's, or has a payload;
// - the dtype is not push_dtype, or not f32 in a seed;
// - the payload's size is not the sum of its slices', or over the frame cap;
// - an absent slice is in a seed, also among the slices that the frame brings,
//   or of a tensor that is not optional.
absl::Status CheckFrame(const FrameHeader& header, const ShardLayout& layout,
                        DType push_dtype);

}  // namespace agg

#endif  // AGG_SERVER_INGEST_FRAME_H_
