// Each difference is named with both values, since two people may have written
// them.
#include "server/rpc/attach_check.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/protocol_version.h"
#include "server/base/address.h"
#include "server/coordinator/call_validation.h"

namespace agg {
namespace {

absl::Status Differ(const ShardIdentity& self, absl::string_view what,
                    absl::string_view theirs, absl::string_view ours,
                    absl::string_view advice) {
  return absl::FailedPreconditionError(absl::StrCat(
      "shard ", self.ordinal, " (", self.address, ") has ", what, " ", ours,
      ", the coordinator expects ", theirs, ": ", advice));
}

// Some 142 years: as an epoch is the clock in microseconds (P20), or a number
// above what others have promised, a clock that is wrong does no harm.
constexpr int64_t kMaxEpochsAhead = int64_t{1} << 52;

absl::Status CheckEpoch(uint64_t epoch, absl::Time now) {
  const uint64_t highest =
      static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixMicros(now))) +
      kMaxEpochsAhead;
  if (epoch >= 1 && epoch <= highest) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("epoch is ", epoch, "; allowed: 1 to ", highest,
                   ", 2^52 microseconds ahead of the clock of the shard"));
}

absl::Status CheckShards(const v1::AttachRequest& request, int num_shards) {
  if (request.shards_size() != 0 && request.shards_size() != num_shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("shards has ", request.shards_size(),
                     " addresses; allowed: none, or ", num_shards));
  }
  for (int i = 0; i < request.shards_size(); ++i) {
    const absl::Status status =
        CheckAddress(absl::StrCat("shards[", i, "]"), request.shards(i));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckAttach(const v1::AttachRequest& request,
                         const ShardIdentity& self, absl::Time now) {
  if (request.protocol_version() != kProtocolVersion) {
    return Differ(
        self, "protocol version", absl::StrCat(request.protocol_version()),
        absl::StrCat(kProtocolVersion), "run the same release everywhere");
  }
  if (request.ordinal() != self.ordinal) {
    return Differ(self, "ordinal", absl::StrCat(request.ordinal()),
                  absl::StrCat(self.ordinal),
                  "check the addresses in `shards` and --shard");
  }
  if (request.num_shards() != self.num_shards) {
    return Differ(self, "num_shards", absl::StrCat(request.num_shards()),
                  absl::StrCat(self.num_shards),
                  "start all shards with the same config");
  }
  absl::Status status = CheckEpoch(request.epoch(), now);
  if (!status.ok()) return status;
  status = ValidateText("coordinator", request.coordinator());
  if (!status.ok()) return status;
  status = ValidateText("config_fingerprint", request.config_fingerprint());
  if (!status.ok()) return status;
  status = CheckShards(request, self.num_shards);
  if (!status.ok()) return status;
  if (request.config_fingerprint() != self.fingerprint) {
    return Differ(self, "config fingerprint", request.config_fingerprint(),
                  self.fingerprint, "start all shards with the same config");
  }
  if (self.ordinal == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("shard 0 (", self.address,
                     ") is attached by the coordinator of its own process and "
                     "by no other"));
  }
  return absl::OkStatus();
}

}  // namespace agg
