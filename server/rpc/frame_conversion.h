// The headers and acknowledgements of Push as plain values and back.
#ifndef AGG_SERVER_RPC_FRAME_CONVERSION_H_
#define AGG_SERVER_RPC_FRAME_CONVERSION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/agg.pb.h"
#include "server/ingest/frame.h"

namespace agg {

// The header of a frame with `payload_bytes` bytes of payload.
// INVALID_ARGUMENT for a kind or dtype that proto/agg.proto does not have;
// everything else is for the engine to check.
absl::StatusOr<FrameHeader> FromProto(const v1::FrameMeta& meta,
                                      int64_t payload_bytes);

// Answers the frame that completed a push.
v1::PushAck MakePushAck(const FrameHeader& header, const FrameResult& result);

}  // namespace agg

#endif  // AGG_SERVER_RPC_FRAME_CONVERSION_H_
