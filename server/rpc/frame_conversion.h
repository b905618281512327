// The headers and acknowledgements of Push as plain values and back.
#ifndef AGG_SERVER_RPC_FRAME_CONVERSION_H_
#define AGG_SERVER_RPC_FRAME_CONVERSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/agg.pb.h"
#include "proto/byte_buffer_frame.h"
#include "server/ingest/frame.h"

namespace agg {

// The header of a frame with `payload_bytes` bytes of payload.
// INVALID_ARGUMENT for a kind or dtype that proto/agg.proto does not have, and
// for session 0; everything else is for the engine to check.
absl::StatusOr<FrameHeader> FromProto(const v1::FrameMeta& meta,
                                      int64_t payload_bytes);

// Answers the frame that completed a push.
v1::PushAck MakePushAck(const FrameHeader& header, const FrameResult& result);

// INVALID_ARGUMENT if what comes with a frame (P41) does not belong to it: a
// commit or a pull with a seed, a commit of another epoch, session, round or
// attempt, a pull of another version than the round's or of another epoch, or
// without a dtype.
absl::Status CheckRequests(const FrameReader& frame);
// What a commit's outcome is sent in: it lacks the outcome alone.
v1::PushAck MakeOutcomeAck(const v1::CommitRequest& commit);

}  // namespace agg

#endif  // AGG_SERVER_RPC_FRAME_CONVERSION_H_
