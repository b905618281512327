// What a shard holds when it promises an epoch, as messages of proto/agg.proto
// and back. Apart from phases: it travels with Attach, and all of it is bounded
// before anybody decides by it.
#ifndef AGG_SERVER_RPC_INVENTORY_CONVERSION_H_
#define AGG_SERVER_RPC_INVENTORY_CONVERSION_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control.pb.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"

namespace agg {

// Bytes of JobFacts.text, at most.
inline constexpr int kMaxFactsBytes = 1 << 20;
// Checkpoints that a shard reports, at most: the newest ones.
inline constexpr int kMaxReportedCheckpoints = 1024;
// Sessions that have ended and are reported, at most.
inline constexpr int kMaxEndedSessions = 65536;

v1::JobFacts ToProto(const JobFacts& facts);
// INVALID_ARGUMENT for a text of more than kMaxFactsBytes.
absl::StatusOr<JobFacts> FromProto(const v1::JobFacts& facts);

// Sets the fields of *reply that say what the shard holds, and none else.
void AddInventory(const ShardInventory& inventory, v1::AttachReply* reply);
// INVALID_ARGUMENT naming the field, if the reply says more than a shard of
// `num_shards` can hold, or says it of a part that there is not.
absl::StatusOr<ShardInventory> FromProto(const v1::AttachReply& reply,
                                         int num_shards);

// Rows that are complete on the shard (P41), and what it offers (P44; null:
// nothing), in a message of their own.
v1::AttachReply ReportOf(const std::vector<CompleteRow>& rows,
                         const CloseOffer* offer = nullptr);
std::vector<CompleteRow> CompleteRowsOf(const v1::AttachReply& reply);

}  // namespace agg

#endif  // AGG_SERVER_RPC_INVENTORY_CONVERSION_H_
