// A change of sessions as a message of proto/agg.proto, and back.
#ifndef AGG_SERVER_RPC_SESSION_CONVERSION_H_
#define AGG_SERVER_RPC_SESSION_CONVERSION_H_

#include <cstdint>

#include "proto/control.pb.h"
#include "server/round/shard_peer.h"

namespace agg {

// Bytes of a reason that one shard gives another, at most. It is the message of
// a status, so that it may be longer than the texts of workers.
inline constexpr int kMaxReasonBytes = 8192;

v1::SetSessionRequest ToProto(uint64_t epoch, const SessionChange& change);
SessionChange FromProto(const v1::SetSessionRequest& request);

}  // namespace agg

#endif  // AGG_SERVER_RPC_SESSION_CONVERSION_H_
