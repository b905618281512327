// What a job goes on from after an epoch has ended: plain values.
#ifndef AGG_SERVER_COORDINATOR_JOB_START_H_
#define AGG_SERVER_COORDINATOR_JOB_START_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "proto/shard_plan.h"
#include "server/coordinator/job_record.h"
#include "server/round/recovery.h"
#include "server/round/session_table.h"

namespace agg {

// A seeded job at a version that all shards have (P18, P29).
struct JobStart {
  VersionId id;
  Manifest manifest;
  std::vector<MemberState> members;  // one for each rank at most
  // Sessions that are known to be over, with the reasons; none is a member's.
  SessionTable sessions;
  // Those of them that some shard takes for alive: the rank by session.
  std::map<uint64_t, int32_t> over;
  uint64_t highest_session = 0;  // that anybody has heard of
  JobRecord record;
  // The checkpoint that it comes from; nothing: from memory.
  std::optional<VersionId> restored;
  bool borrowed = false;  // that one is another job's
  // What was made of copies and checkpoints, for people; "": as it was.
  std::string restore;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_JOB_START_H_
