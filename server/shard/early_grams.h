// Which slices' Grams can be computed before their round closes, and those that
// have been: bookkeeping alone, without a thread or a backend.
#ifndef AGG_SERVER_SHARD_EARLY_GRAMS_H_
#define AGG_SERVER_SHARD_EARLY_GRAMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/buffer.h"
#include "server/round/phase.h"

namespace agg {

// A slice is complete once all expected rows have landed it. Expected are the
// rows that the open round will probably close with; if it closes with others,
// what was computed early is of no use and nothing else is lost. Slices are
// positions in the shard's layout. Thread-compatible: its owner's lock
// protects it.
class EarlyGrams {
 public:
  // What is computed at one time: 32 slices, so that a backend on a device
  // computes one batch while the next ones' rows are copied there, and no more
  // multiplications than a CPU does in some tenths of a second, since a phase
  // and a new session's frames wait for it. One slice in any case.
  static constexpr size_t kMaxSlices = 32;
  static constexpr double kMaxProducts = 4e9;

  struct Batch {
    std::vector<RoundRow> rows;
    std::vector<int32_t> slices;  // ascending
  };

  // A round begins or its expected rows change: forgets all slices and
  // results. `rows` ascends by rank; none: nothing is early.
  void Expect(std::vector<RoundRow> rows, int num_slices);
  const std::vector<RoundRow>& rows() const { return rows_; }

  // All of rows() have landed the slice. A repeat changes nothing.
  void SliceComplete(int32_t slice);

  bool any_ready() const { return !ready_.empty(); }
  // Slices that became complete first; their bytes are being read until
  // Finish. `ranges`: of all slices. REQUIRES: any_ready(), and the batch
  // before it is finished.
  Batch Take(const std::vector<ElementRange>& ranges);
  // `grams`: one per slice of the batch. Ignored if Expect came between.
  void Finish(std::vector<SliceGram> grams);
  // Nothing came of the batch, nor will of others: the rest is computed when
  // the round closes.
  void GiveUp();
  // Whether the rank's bytes of the slice are being read at this moment.
  bool Reading(int32_t rank, int32_t slice) const;

  // The round closes with `rows`: nothing more is ready. Moves out what has
  // been computed for them: by slice of `num_slices`, empty where there is
  // nothing.
  std::vector<std::optional<SliceGram>> TakeResults(
      const std::vector<RoundRow>& rows, int num_slices);

 private:
  std::vector<RoundRow> rows_;
  std::vector<bool> complete_;  // by slice
  std::vector<int32_t> ready_;  // in the order of completion, not yet taken
  std::vector<std::optional<SliceGram>> results_;  // by slice
  std::optional<Batch> reading_;
  bool reading_is_stale_ = false;
};

bool SameRows(const std::vector<RoundRow>& a, const std::vector<RoundRow>& b);

}  // namespace agg

#endif  // AGG_SERVER_SHARD_EARLY_GRAMS_H_
