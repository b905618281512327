// No state and no wire types: see the header for what is checked.
#include "server/coordinator/call_validation.h"

#include "absl/strings/str_cat.h"
#include "proto/shard_plan.h"
#include "server/base/field_error.h"

namespace agg {
absl::Status ValidateJoin(const JoinCall& call, int32_t max_workers) {
  if (call.rank < 0 || call.rank >= max_workers) {
    return FieldError("rank", absl::StrCat(call.rank),
                      absl::StrCat("0 to ", max_workers - 1));
  }
  return ValidateManifest(call.manifest);
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
  return CheckField(IsFinitePositive(row.loss_scale), "commit.loss_scale",
                    row.loss_scale, "finite and above 0");
}

}  // namespace agg
