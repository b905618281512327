// How a worker's rows and parameters travel to and from each shard, as it says
// with its lease (LeaseRenewal.transports).
#ifndef AGG_SERVER_ROUND_WORKER_TRANSPORTS_H_
#define AGG_SERVER_ROUND_WORKER_TRANSPORTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace agg {

// The words, and last what stands for any other one: a client of a later
// release may know one that this server does not.
inline constexpr std::array<absl::string_view, 5> kTransportNames = {
    "shm", "unix", "tcp", "cuda", "other"};

// Transports of one worker. Bounded, whatever it has sent.
struct WorkerTransports {
  // Shards by transport, in the order of kTransportNames; zeros: not said.
  std::array<int32_t, kTransportNames.size()> shards = {};
  // Text for people, at most kMaxBytes: "shm" if it is the same for all shards,
  // else by ordinal, "shm tcp"; where that would be longer, how many shards
  // have which, "900 shm, 124 tcp". "": not said.
  std::string text;
  static constexpr size_t kMaxBytes = 128;
};

// Parses the transports of a worker in a job of that many shards. `text` has a
// word for each shard, by ordinal, with single spaces between them; "": not
// said. INVALID_ARGUMENT "transports is ..." for another number of words.
absl::StatusOr<WorkerTransports> ParseTransports(absl::string_view text,
                                                 int num_shards);

}  // namespace agg

#endif  // AGG_SERVER_ROUND_WORKER_TRANSPORTS_H_
