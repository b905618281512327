// ShardPeer's plain values as messages of proto/agg.proto, and back.
#ifndef AGG_SERVER_RPC_PHASE_CONVERSION_H_
#define AGG_SERVER_RPC_PHASE_CONVERSION_H_

#include <vector>

#include "absl/status/statusor.h"
#include "proto/agg.pb.h"
#include "server/round/shard_peer.h"

namespace agg {

// Bytes of a reason that one shard gives another, at most. It is the message of
// a status, so that it may be longer than the texts of workers.
inline constexpr int kMaxReasonBytes = 8192;

v1::SetSessionRequest ToProto(uint64_t epoch, const SessionChange& change);
SessionChange FromProto(const v1::SetSessionRequest& request);

v1::PhaseRequest ToProto(const Phase& phase);
// INVALID_ARGUMENT for a request without a phase.
absl::StatusOr<Phase> FromProto(const v1::PhaseRequest& request);

// One or more messages of at most kMaxReplyBytes (more if one entry alone has
// more). `seconds` is in the last one.
std::vector<v1::PhaseReply> ToProto(const PhaseResult& result);
// Appends one message's share to `result`.
void AppendReply(const v1::PhaseReply& reply, PhaseResult* result);

inline constexpr int64_t kMaxReplyBytes = int64_t{3} << 20;

}  // namespace agg

#endif  // AGG_SERVER_RPC_PHASE_CONVERSION_H_
