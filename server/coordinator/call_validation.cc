// No state and no wire types: see the header for what is checked.
#include "server/coordinator/call_validation.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/shard_plan.h"

namespace agg {
namespace {

template <typename T>
absl::Status FieldError(absl::string_view field, T value,
                        absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, " is ", value, "; allowed: ", allowed));
}

}  // namespace

absl::Status ValidateJoin(const JoinCall& call, int32_t max_workers) {
  if (call.rank < 0 || call.rank >= max_workers) {
    return FieldError("rank", call.rank,
                      absl::StrCat("0 to ", max_workers - 1));
  }
  return ValidateManifest(call.manifest);
}

absl::Status ValidateCommit(const CommitInfo& info) {
  const RowInfo& row = info.row;
  if (row.examples < 1) {
    return FieldError("commit.examples", row.examples, "1 or more");
  }
  if (row.accumulation < 1) {
    return FieldError("commit.accumulation", row.accumulation, "1 or more");
  }
  if (!std::isfinite(row.loss_scale) || row.loss_scale <= 0.0) {
    return FieldError("commit.loss_scale", row.loss_scale,
                      "finite and above 0");
  }
  return absl::OkStatus();
}

}  // namespace agg
