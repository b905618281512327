// What a shard knows about the rows of a pipelined round, wave by wave (P43):
// how far each one is, and which attempts count once the first wave is closed.
#ifndef AGG_SERVER_SHARD_ROW_WAVES_H_
#define AGG_SERVER_SHARD_ROW_WAVES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/ingest/arrival_ledger.h"
#include "server/ingest/wave_slices.h"
#include "server/round/phase.h"

namespace agg {

// Waves count from 1. Thread-compatible: its owner's lock protects it.
class RowWaves {
 public:
  // Takes the waves' slices; none: the job is not pipelined.
  explicit RowWaves(std::vector<WaveSlices> waves) : waves_(std::move(waves)) {}

  int size() const { return static_cast<int>(waves_.size()); }
  // REQUIRES: 1 <= wave <= size().
  const WaveSlices& slices(int wave) const { return waves_[wave - 1]; }

  using HasLanded = std::function<bool(int32_t slice)>;
  // Whether the row has all slices of the wave. REQUIRES: as slices().
  bool Complete(int wave, const HasLanded& has_landed) const;
  // How many of the first waves of the rank's row, which `name` names, are
  // complete: 0 if that is none, or as many as at the last call for that row
  // and not `again`.
  int News(int32_t rank, const GradientName& name, bool again,
           const HasLanded& has_landed);

  // Notes that these rows are in the round's first wave: no other attempt of
  // theirs may come any more.
  void Pin(std::vector<RoundRow> rows) { pinned_ = std::move(rows); }
  void Unpin() { pinned_.clear(); }
  // FAILED_PRECONDITION if another attempt of the rank's row is pinned.
  absl::Status CheckAttempt(int32_t rank, const GradientName& name) const;

 private:
  struct Known {
    GradientName name;
    int waves = 0;
  };
  const std::vector<WaveSlices> waves_;
  std::map<int32_t, Known> known_;  // by rank
  std::vector<RoundRow> pinned_;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_ROW_WAVES_H_
