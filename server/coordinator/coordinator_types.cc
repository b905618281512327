// The words for ends of sessions, a name for labels and a sentence for the log;
// and the checks of what a worker says.
#include "server/coordinator/coordinator_types.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/shard_plan.h"
#include "server/base/field_error.h"

namespace agg {

CloseOptions CloseOptionsOf(const CoordinatorOptions& options) {
  return {options.workers,       options.min_workers,  options.start_timeout,
          options.round_timeout, options.floor_policy, options.floor_timeout,
          options.quorum};
}

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

// No state and no wire types: see the header for what is checked.

absl::Status ValidateText(absl::string_view field, absl::string_view text,
                          int max_bytes) {
  if (text.size() <= static_cast<size_t>(max_bytes)) return absl::OkStatus();
  return FieldError(field, absl::StrCat(text.size(), " bytes"),
                    absl::StrCat("at most ", max_bytes, " bytes"));
}

absl::Status ValidateJoin(const JoinCall& call, int32_t max_workers) {
  if (call.rank < 0 || call.rank >= max_workers) {
    return FieldError("rank", absl::StrCat(call.rank),
                      absl::StrCat("0 to ", max_workers - 1));
  }
  return ValidateText("client", call.client);
}

absl::Status ValidateCommit(const CommitInfo& info) {
  const RowInfo& row = info.row;
  if (row.examples < 1) {
    return FieldError("commit.examples", absl::StrCat(row.examples),
                      "1 or more");
  }
  if (row.accumulation < 1) {
    return FieldError("commit.accumulation", absl::StrCat(row.accumulation),
                      "1 or more");
  }
  if (row.micro_norm_squared_sum.value_or(0.0) < 0.0) {
    return FieldError("commit.micro_norm_squared_sum",
                      absl::StrCat(*row.micro_norm_squared_sum),
                      "0 or more; a sum of squares");
  }
  return CheckField(IsFinitePositive(row.loss_scale), "commit.loss_scale",
                    row.loss_scale, "finite and above 0");
}

absl::Status ValidateAbsentTensors(const std::string& bits,
                                   const Manifest& manifest) {
  // It is kept with the row, and looked at under the coordinator's lock.
  const size_t max_bytes = (manifest.tensors.size() + 7) / 8;
  if (bits.size() > max_bytes) {
    return FieldError("commit.absent_tensors",
                      absl::StrCat(bits.size(), " bytes"),
                      absl::StrCat(max_bytes,
                                   " at most, a bit for each tensor "
                                   "of the manifest"));
  }
  for (size_t i = 0; i < 8 * bits.size(); ++i) {
    if (((static_cast<uint8_t>(bits[i / 8]) >> (i % 8)) & 1) == 0) continue;
    if (i < manifest.tensors.size() && manifest.tensors[i].optional) continue;
    return FieldError("commit.absent_tensors", absl::StrCat("tensor ", i),
                      "places of optional tensors of the manifest");
  }
  return absl::OkStatus();
}

absl::Status ValidateRowCrc32c(const std::vector<uint32_t>& row_crc32c,
                               int num_shards) {
  const size_t size = row_crc32c.size();
  if (size == 0 || size == static_cast<size_t>(num_shards)) {
    return absl::OkStatus();
  }
  return FieldError("commit.row_crc32c", absl::StrCat("of ", size, " entries"),
                    absl::StrCat("none, or one per shard, ", num_shards));
}

}  // namespace agg
