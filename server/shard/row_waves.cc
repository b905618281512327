// A row's count only grows while it is the same gradient, so that each look
// begins where the last one has ended.
#include "server/shard/row_waves.h"

#include "absl/strings/str_cat.h"

namespace agg {

bool RowWaves::Complete(int wave, const HasLanded& has_landed) const {
  const WaveSlices& slices = waves_[wave - 1];
  for (size_t slice = slices.begin; slice < slices.end; ++slice) {
    if (!has_landed(static_cast<int32_t>(slice))) return false;
  }
  return true;
}

int RowWaves::News(int32_t rank, const GradientName& name, bool again,
                   const HasLanded& has_landed) {
  Known& known = known_[rank];
  if (!(known.name == name)) known = {name, 0};
  const int before = known.waves;
  while (known.waves < size() && Complete(known.waves + 1, has_landed)) {
    ++known.waves;
  }
  return known.waves == before && !again ? 0 : known.waves;
}

absl::Status RowWaves::CheckAttempt(int32_t rank,
                                    const GradientName& name) const {
  for (const RoundRow& row : pinned_) {
    if (row.rank != rank || row.session != name.session ||
        row.attempt == name.attempt) {
      continue;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("attempt ", name.attempt, " of round ", name.round,
                     ", which is being published with attempt ", row.attempt));
  }
  return absl::OkStatus();
}

}  // namespace agg
