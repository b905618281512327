// The coordinator's plain values as messages of proto/agg.proto, and back.
#ifndef AGG_SERVER_RPC_JOB_CONVERSION_H_
#define AGG_SERVER_RPC_JOB_CONVERSION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/dtype.h"
#include "proto/agg.pb.h"
#include "proto/byte_buffer_frame.h"
#include "proto/external_rule.pb.h"
#include "proto/join_parts.pb.h"
#include "proto/shard_plan.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/rule_processes.h"
#include "server/ingest/frame.h"
#include "server/round/round_report.h"

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

// What every JoinReply says about the configuration.
struct JobInfo {
  std::string job;
  int32_t workers = 1;  // expected
  int32_t max_workers = 1;
  absl::Duration lease;
  DType push_dtype = DType::kF32;
  DType pull_dtype = DType::kF32;
  std::string optimizer;            // its kind
  std::vector<std::string> shards;  // addresses by ordinal
  uint64_t coordinator_life = 0;    // random bits of the process
  bool pipelined = false;           // rounds go wave by wave (P43)
  std::string local_socket;         // that the coordinator listens on (P38)
  std::string region_socket;        // likewise (P39)
};

v1::CombinationNames ToProto(const CombinationNames& names);
// Makes the message without the manifest, whose bytes all replies share
// (ManifestBook::MessageOf).
v1::JoinReply ToProto(const JoinResult& result, const JobInfo& job);
// Reads the message without the manifest. ValidateJoin checks the result.
JoinCall FromProto(const v1::JoinParts& request);
v1::JobEvent ToProto(const JobEvent& event);
v1::RoundOutcome ToProto(const RoundResult& outcome);
v1::StatusReply ToProto(const JobStatus& status,
                        const std::optional<RoundResult>& last,
                        const JobInfo& job);

// A poll of a process that decides an external rule, and what it gets.
RulePoll FromProto(v1::ServeRuleRequest request, const std::string& identity);
v1::RuleQuestion ToProto(const RuleQuestion& question);

// A manifest travels to the other shards in one message, with a few fields more
// than a Join has. One that would not fit is refused with INVALID_ARGUMENT.
// What a round sends per tensor is streamed and needs no check.
absl::Status CheckMessageSize(int64_t manifest_bytes, const JobInfo& job);

// 0 becomes the default where proto/agg.proto says so. INVALID_ARGUMENT for an
// unknown kind; what else a Commit says is checked by ValidateCommit.
absl::StatusOr<CommitCall> FromProto(const v1::CommitRequest& request);

}  // namespace agg

#endif  // AGG_SERVER_RPC_JOB_CONVERSION_H_
