// The server's answers as text for people, and as JSON for programs. Pure.
#ifndef AGG_WORKER_CLIENT_TOOLS_AGGCTL_TABLES_H_
#define AGG_WORKER_CLIENT_TOOLS_AGGCTL_TABLES_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "proto/admin.pb.h"
#include "proto/agg.pb.h"

namespace agg {

// Protobuf's JSON mapping in one line, all fields, names as in the .proto
// files: 64-bit integers are strings, NaN is "NaN". A line break at the end.
std::string JsonOf(const google::protobuf::Message& message);

// The job in some lines: phase, combination, who is waited for, the last round.
// `now` is when the answer was made; "since" times are counted back from it.
std::string StatusText(const v1::StatusReply& status, absl::Time now);
// One row per worker.
std::string WorkersTable(const v1::StatusReply& status, absl::Time now);
std::string TensorsTable(const v1::ListTensorsReply& reply);
// One row per round; the columns of several calls align.
std::string RoundsTable(const v1::ListRoundsReply& reply, bool header);
// Rounds between what `request` asks for and the first that `reply` has: more
// have gone by than the server keeps. 0 where epochs differ.
uint64_t NumMissed(const v1::ListRoundsRequest& request,
                   const v1::ListRoundsReply& reply);
// A line that says how many rounds were missed; "" for none.
std::string MissedText(uint64_t num_missed);
// Rounds per second between the first and the last one; "" for fewer than two.
std::string RateText(const v1::ListRoundsReply& reply);

std::string SetRuleText(const v1::SetRuleReply& reply);
std::string EvictText(int rank, const v1::EvictWorkerReply& reply);
std::string VersionText(const v1::GetVersionReply& reply);

// The lines of `aggctl status` about recovery, copies and checkpoints: what is
// waited for between two epochs, and what keeps the job. "" where
// nothing is configured and nothing is waited for.
std::string SurvivalText(const v1::StatusReply& status, absl::Time now);

std::string CheckpointText(const v1::TakeCheckpointReply& reply);

// What was done, and a line for each checkpoint that some shard sees.
std::string RestoreText(const v1::RestoreReply& reply);
std::string ResumeText(const v1::ResumeReply& reply, bool dry_run);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_TOOLS_AGGCTL_TABLES_H_
