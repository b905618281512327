// A worker that is gone keeps what has landed of its row: later waves go on
// without it.
#include "server/coordinator/open_waves.h"

#include <algorithm>

namespace agg {

void OpenWaves::Note(const CompleteRow& row, int waves) {
  if (row.round != round_) return;
  for (WaveRow& known : rows_) {
    if (known.session != row.session || known.attempt != row.attempt) continue;
    known.waves = std::max(known.waves, std::min(waves, num_waves_));
  }
}

std::vector<int32_t> OpenWaves::Missing(const IsAlive& is_alive) const {
  std::vector<int32_t> missing;
  for (const WaveRow& row : rows_) {
    if (row.waves <= next_ && is_alive(row.session)) {
      missing.push_back(row.rank);
    }
  }
  return missing;
}

std::optional<std::vector<int32_t>> OpenWaves::RanksIfDue(
    const IsAlive& is_alive) const {
  if (!Missing(is_alive).empty()) return std::nullopt;
  std::vector<int32_t> ranks;
  for (const WaveRow& row : rows_) {
    if (row.waves > next_) ranks.push_back(row.rank);
  }
  return ranks;
}

void OpenWaves::Advance(const std::set<int32_t>& dropped) {
  ++next_;
  rows_.erase(std::remove_if(rows_.begin(), rows_.end(),
                             [&dropped](const WaveRow& row) {
                               return dropped.count(row.rank) != 0;
                             }),
              rows_.end());
}

}  // namespace agg
