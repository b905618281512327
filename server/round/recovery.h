// What survives in the memory of processes when an epoch ends, as they report
// it, and what becomes of it (P18): plain values.
#ifndef AGG_SERVER_ROUND_RECOVERY_H_
#define AGG_SERVER_ROUND_RECOVERY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_state.h"

namespace agg {

// Which version, and which epoch made it. A higher one is newer.
using VersionId = CheckpointId;

// One part's copy in the memory of one process. A void one is not reported.
struct CopyState {
  int32_t part = 0;
  VersionId id;
  // The epoch that has prepared it for the next version, in part or in full;
  // 0: none. Without replication the arrays hold the next version then.
  uint64_t prepared_by = 0;
  bool whole = false;  // prepared in full
};

// A session that a shard knows to be alive.
struct MemberState {
  int32_t rank = 0;
  uint64_t session = 0;
  uint64_t first_round = 0;
  std::string client;
  std::string identity = {};  // to whom it belongs (P45); "": to anybody
};

// What changes between two rounds (P37), as text of the coordinator's own. The
// one with the highest (epoch, number) holds.
struct JobFacts {
  uint64_t epoch = 0;  // in which it was set; 0: never
  uint64_t number = 0;
  std::string text;

  friend bool operator<(const JobFacts& a, const JobFacts& b) {
    return a.epoch != b.epoch ? a.epoch < b.epoch : a.number < b.number;
  }
};

// A process as it was when it promised an epoch.
struct ShardInventory {
  uint64_t life = 0;          // random bits of the process; 0: not known
  uint64_t member_epoch = 0;  // the last one whose recovery it carried out
  bool has_manifest = false;
  std::vector<CopyState> copies;  // home and replica at most
  std::vector<MemberState> members;
  std::vector<uint64_t> ended_sessions;
  uint64_t highest_session = 0;  // that it has heard of
  JobFacts facts;
  CheckpointListing checkpoints;        // that it can read
  CheckpointListing other_checkpoints;  // of the job that restore_job names
  std::string local_socket;   // of the process (P38); "": none, or not known
  std::string region_socket;  // likewise (P39)
};

// What one process does with one of its copies.
enum class CopyAction : uint8_t {
  kVoid,  // forget it; it is fetched, or loaded, later
  kKeep,  // it is at the target; what was prepared is dropped
  kStep,  // it takes what was prepared, and is at the target then
  kLoad   // of a home: from the checkpoint
};

// What one process does in a recovery, besides fetching. A repeat, also after
// a recovery that was cut, changes nothing: a copy that is at the target stays
// there.
struct RecoverPlan {
  VersionId target;       // of all copies in the end
  bool unseeded = false;  // nothing is left: the job waits for a Seed
  CopyAction home = CopyAction::kVoid;
  CopyAction replica = CopyAction::kVoid;
  JobFacts facts;
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_RECOVERY_H_
