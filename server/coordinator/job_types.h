// What a JobState consists of and what it asks its owner to do: plain values.
#ifndef AGG_SERVER_COORDINATOR_JOB_TYPES_H_
#define AGG_SERVER_COORDINATOR_JOB_TYPES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/departures.h"
#include "server/round/shard_peer.h"
#include "server/round/worker_transports.h"

namespace agg {

// A worker that takes part, in one life of it.
struct Member {
  int32_t rank = 0;
  uint64_t session = 0;
  std::string client;
  std::string identity;  // to whom the session belongs; "": to anybody
  uint64_t first_round = 0;
  absl::Time lease_end;
  bool disconnected = false;  // its stream broke; it has the grace
  WorkerTransports transports;
};

// A committed row of the open round; outlives its worker (P6).
struct Contribution {
  uint64_t session = 0;
  uint32_t attempt = 0;
  std::vector<uint32_t> row_crc32c;  // as of CommitCall
  CommitInfo info;                   // with the rank
  absl::Time committed_at;
  int waves = 0;  // as of CommitCall
};

// What the owner has to do or to send, in order.
struct JobEffects {
  std::vector<SessionChange> changes;                    // to all shards
  std::vector<std::pair<uint64_t, JobEvent>> events;     // session, or 0: all
  std::vector<std::pair<uint64_t, absl::Status>> ended;  // sessions
  std::vector<Departure> departures;  // for people; one for each of `ended`
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_JOB_TYPES_H_
