// Checks what the message's types cannot say: that kind and dtype are known.
#include "server/rpc/frame_conversion.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace agg {

absl::StatusOr<FrameHeader> FromProto(const v1::FrameMeta& meta,
                                      int64_t payload_bytes) {
  if (meta.kind() != v1::GRADIENT && meta.kind() != v1::SEED) {
    return absl::InvalidArgumentError(absl::StrCat(
        "meta.kind is ", meta.kind(), "; allowed: GRADIENT (0), SEED (1)"));
  }
  if (meta.dtype() < v1::F32 || meta.dtype() > v1::F16) {
    return absl::InvalidArgumentError(
        absl::StrCat("meta.dtype is ", meta.dtype(),
                     "; allowed: F32 (1), BF16 (2), F16 (3)"));
  }
  FrameHeader header;
  header.epoch = meta.epoch();
  header.session = meta.session();
  header.round = meta.round();
  header.attempt = meta.attempt();
  header.kind = static_cast<PushKind>(meta.kind());
  header.dtype = static_cast<DType>(meta.dtype());
  header.slices.assign(meta.slices().begin(), meta.slices().end());
  header.crc32c.assign(meta.crc32c().begin(), meta.crc32c().end());
  header.absent_slices.assign(meta.absent_slices().begin(),
                              meta.absent_slices().end());
  header.payload_bytes = payload_bytes;
  return header;
}

v1::PushAck MakePushAck(const FrameHeader& header, const FrameResult& result) {
  v1::PushAck ack;
  ack.set_epoch(header.epoch);
  ack.set_round(header.round);
  ack.set_kind(static_cast<v1::PushKind>(header.kind));
  ack.set_closed(result.closed);
  ack.set_attempt(header.attempt);
  return ack;
}

}  // namespace agg
