// Ends of sessions, as operators hear of them. Apart from JobState, which
// collects them, and from CoordinatorState, which writes them to the log.
#ifndef AGG_SERVER_COORDINATOR_DEPARTURES_H_
#define AGG_SERVER_COORDINATOR_DEPARTURES_H_

#include <cstdint>
#include <string>

#include "server/coordinator/coordinator_types.h"

namespace agg {

// Why a session is over.
enum class DepartureKind : uint8_t {
  kLeft,          // by itself
  kLeaseExpired,  // nothing was heard of the worker for the whole lease
  kDisconnected,  // its connection broke, and it was not back in the grace
  kEvicted,       // by an operator
  kSuperseded     // another session joined with its rank
};
constexpr int kNumDepartureKinds = 5;

// One worker whose session is over.
struct Departure {
  DepartureKind kind = DepartureKind::kLeft;
  int32_t rank = 0;
  std::string client;
  std::string reason;  // what the worker's own calls get
  uint64_t session = 0;
  std::string identity;  // whose the session was; "": anybody's
};

// A word for metrics' labels: "left", "lease_expired", "disconnected",
// "evicted", "superseded".
const char* DepartureName(DepartureKind kind);

// Whether the worker went without a word: its machine or its network failed.
bool IsLoss(DepartureKind kind);

// The end of a session in words, without its rank: "is lost: its lease of 30s
// has run out".
std::string WhatHappened(const Departure& departure,
                         const CoordinatorOptions& options);

// One line, for the log. `num_left`: workers that are in the job now.
std::string DescribeDeparture(const Departure& departure,
                              const CoordinatorOptions& options, int num_left);

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_DEPARTURES_H_
