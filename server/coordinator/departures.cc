// The words for ends of sessions: a name for labels and a sentence for the log.
#include "server/coordinator/departures.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace agg {

std::string WhatHappened(const Departure& departure,
                         const CoordinatorOptions& options) {
  switch (departure.kind) {
    case DepartureKind::kLeft:
      return "has left the job";
    case DepartureKind::kLeaseExpired:
      return absl::StrCat("is lost: its lease of ",
                          absl::FormatDuration(options.lease), " has run out");
    case DepartureKind::kDisconnected:
      return absl::StrCat(
          "is lost: its connection broke, and it was not back "
          "within reconnect_grace (",
          absl::FormatDuration(options.reconnect_grace), ")");
    case DepartureKind::kEvicted:
      return absl::StrCat("was ", departure.reason);  // "evicted: why"
    case DepartureKind::kSuperseded:
      return "was superseded: another session joined with this rank";
  }
  return "is gone";
}

const char* DepartureName(DepartureKind kind) {
  static constexpr const char* kNames[kNumDepartureKinds] = {
      "left", "lease_expired", "disconnected", "evicted", "superseded"};
  return kNames[static_cast<int>(kind)];
}

bool IsLoss(DepartureKind kind) {
  return kind == DepartureKind::kLeaseExpired ||
         kind == DepartureKind::kDisconnected;
}

std::string DescribeDeparture(const Departure& departure,
                              const CoordinatorOptions& options, int num_left) {
  return absl::StrCat("rank ", departure.rank, " (", departure.client, ") ",
                      WhatHappened(departure, options), "; ", num_left, " of ",
                      options.workers, " workers are in");
}

}  // namespace agg
