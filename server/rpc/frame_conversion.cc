// Checks what the message's types cannot say: that kind and dtype are known,
// and that somebody pushes.
#include "server/rpc/frame_conversion.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/field_error.h"
#include "server/rpc/pull_query.h"

namespace agg {
namespace {

// A field of what comes with a frame, which has one value allowed.
absl::Status CheckSame(absl::string_view field, uint64_t value,
                       uint64_t allowed) {
  if (value == allowed) return absl::OkStatus();
  return FieldError(field, absl::StrCat(value),
                    absl::StrCat(allowed, ", as the frame's meta says"));
}

}  // namespace

absl::StatusOr<FrameHeader> FromProto(const v1::FrameMeta& meta,
                                      int64_t payload_bytes) {
  if (meta.kind() != v1::GRADIENT && meta.kind() != v1::SEED) {
    return absl::InvalidArgumentError(absl::StrCat(
        "meta.kind is ", meta.kind(), "; allowed: GRADIENT (0), SEED (1)"));
  }
  if (meta.dtype() < v1::F32 || meta.dtype() > v1::I8) {
    return absl::InvalidArgumentError(
        absl::StrCat("meta.dtype is ", meta.dtype(),
                     "; allowed: F32 (1), BF16 (2), F16 (3), I8 (4)"));
  }
  // 0 is nobody's (P26), and before any epoch it would name nobody's row.
  if (meta.session() == 0) {
    return FieldError("meta.session", "0", "the session of a JoinReply");
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
  header.in_place = meta.in_place();
  header.on_device = meta.on_device();
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

v1::PushAck MakeOutcomeAck(const v1::CommitRequest& commit) {
  v1::PushAck ack;
  ack.set_epoch(commit.epoch());
  ack.set_round(commit.round());
  ack.set_attempt(commit.attempt());
  return ack;
}

absl::Status CheckRequests(const FrameReader& frame) {
  const v1::FrameMeta& meta = frame.meta();
  const std::optional<v1::CommitRequest>& commit = frame.commit();
  const std::optional<v1::PullRequest>& pull = frame.pull();
  if (meta.kind() == v1::SEED && (commit.has_value() || pull.has_value())) {
    return absl::InvalidArgumentError(
        "meta.kind is SEED (1) in a frame with commit or pull; allowed: "
        "GRADIENT (0)");
  }
  if (commit.has_value()) {
    absl::Status status =
        CheckSame("commit.kind", commit->kind(), v1::GRADIENT);
    if (status.ok())
      status = CheckSame("commit.epoch", commit->epoch(), meta.epoch());
    if (status.ok())
      status = CheckSame("commit.session", commit->session(), meta.session());
    if (status.ok())
      status = CheckSame("commit.round", commit->round(), meta.round());
    if (status.ok())
      status = CheckSame("commit.attempt", commit->attempt(), meta.attempt());
    if (!status.ok()) return status;
  }
  if (!pull.has_value()) return absl::OkStatus();
  absl::Status status = CheckSame("pull.latest", pull->latest(), 0);
  if (status.ok())
    status = CheckSame("pull.version", pull->version(), meta.round() + 1);
  if (status.ok() && pull->epoch() != 0) {
    status = CheckSame("pull.epoch", pull->epoch(), meta.epoch());
  }
  return status.ok() ? QueryOf(*pull).status() : status;
}

}  // namespace agg
