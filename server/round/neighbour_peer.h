// What a shard asks of its neighbours on the ring (P15): shard p sends what
// its next version takes to its buddy, shard p + 1, and void copies are fetched
// from whoever has the part's other copy. The shard of another process
// implements it over gRPC (server/rpc), in tests ShardEngine does directly.
#ifndef AGG_SERVER_ROUND_NEIGHBOUR_PEER_H_
#define AGG_SERVER_ROUND_NEIGHBOUR_PEER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/round/recovery.h"

namespace agg {

// Whose bytes, between two processes.
struct CopyHeader {
  uint64_t epoch = 0;  // of the call
  int32_t part = 0;
  // Combined slices: the version that they lead on from; their round has its
  // number. A fetch: the version that is asked for.
  VersionId id;
};

enum class CopyArray : uint8_t {
  kCombined,    // the combined gradient
  kParameters,  // master weights
  kState0,
  kState1
};

// One slice of one array; `slice` counts over the job's plan.
struct CopySlice {
  CopyArray array = CopyArray::kCombined;
  int32_t slice = 0;
  absl::Span<const float> values;
};

// Takes what a fetch brings, on the thread that fetches; an error ends it.
struct CopySink {
  std::function<absl::Status(const CopySlice&)> slice;
  // Once, if the part is 0: the job's record of that version.
  std::function<absl::Status(std::string)> record;
};

// Thread-safe; calls block. Errors: UNAVAILABLE naming the link when the
// neighbour is gone or makes no progress for 30 s, ABORTED for another epoch
// than the one that it is in, FAILED_PRECONDITION when it has no such copy.
class NeighbourPeer {
 public:
  virtual ~NeighbourPeer() = default;

  // A slice of the combined gradient of the caller's part, for its replica
  // there. Slices of one round come from one thread, each once; a new
  // Prepare of the same round (repeat) may send them again. May return before
  // the neighbour has it.
  virtual absl::Status SendCombined(const CopyHeader& header,
                                    const CopySlice& slice) = 0;
  // Waits until the neighbour holds all slices of the part for that round.
  virtual absl::Status FinishCombined(const CopyHeader& header) = 0;

  // All slices of all arrays of the neighbour's copy of the part.
  virtual absl::Status Fetch(const CopyHeader& header,
                             const CopySink& sink) = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_ROUND_NEIGHBOUR_PEER_H_
