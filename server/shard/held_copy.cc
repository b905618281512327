// The states of a copy: each function is one arrow between them.
#include "server/shard/held_copy.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace agg {

void HeldCopy::Hold(const VersionId& id, RecordText record) {
  Void();
  held_ = true;
  state_.id = id;
  record_ = std::move(record);
}

void HeldCopy::BeginPrepare(uint64_t epoch) {
  state_.prepared_by = epoch;
  state_.whole = false;
}

void HeldCopy::EndPrepare(RecordText record) {
  state_.whole = true;
  next_record_ = std::move(record);
}

void HeldCopy::Step() {
  const VersionId next{state_.prepared_by, state_.id.version + 1};
  Hold(next, std::move(next_record_));
}

void HeldCopy::Drop() {
  state_.prepared_by = 0;
  state_.whole = false;
  next_record_ = nullptr;
}

void HeldCopy::Void() {
  Drop();
  held_ = false;
  record_ = nullptr;
}

absl::Status HeldCopy::CheckStep(const VersionId& target) const {
  const VersionId next{state_.prepared_by, state_.id.version + 1};
  if (held_ && state_.whole && next == target) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "a step to ", DescribeVersion(target), " is not possible: ", Describe()));
}

std::string HeldCopy::Describe() const {
  const std::string part = absl::StrCat("part ", state_.part);
  if (!held_) return absl::StrCat(part, " is void");
  const std::string at =
      absl::StrCat(part, " is at ", DescribeVersion(state_.id));
  if (!prepared()) return at;
  return absl::StrCat(at, ", prepared ", state_.whole ? "" : "in part ",
                      "by epoch ", state_.prepared_by);
}

std::string DescribeVersion(const VersionId& id) {
  return absl::StrCat("version ", id.version, " (made by epoch ", id.made, ")");
}

}  // namespace agg
