// Which slices' Grams can be computed before their round closes, and those that
// have been: bookkeeping alone, without a thread or a backend.
#ifndef AGG_SERVER_ROUND_EARLY_GRAMS_H_
#define AGG_SERVER_ROUND_EARLY_GRAMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "server/round/phase.h"

namespace agg {

// A slice is ready once all expected rows have landed it. Expected are the
// rows that the open round will probably close with; if it closes with others,
// what was computed early is of no use and nothing else is lost. Slices are
// positions in the shard's layout. Thread-compatible: its owner's lock
// protects it.
class EarlyGrams {
 public:
  // A backend on a device computes one batch while the next ones' rows are
  // copied there: one of all slices would wait for all copies.
  static constexpr size_t kMaxBatch = 32;

  // What is computed at one time.
  struct Batch {
    std::vector<RoundRow> rows;
    std::vector<int32_t> slices;  // ascending
  };

  // A round begins or its expected rows change: forgets all counts and
  // results. `rows` ascends by rank; none: nothing is early.
  void Expect(std::vector<RoundRow> rows, int num_slices);
  const std::vector<RoundRow>& rows() const { return rows_; }

  // The row of (rank, session) has landed the slice; nothing if it is not
  // expected. REQUIRES: once per row and slice between two Expect.
  void SliceLanded(int32_t rank, uint64_t session, int32_t slice);

  bool any_ready() const { return !ready_.empty(); }
  // Slices that became ready first, at most kMaxBatch; their bytes are being
  // read until Finish. REQUIRES: the batch before it is finished.
  Batch Take();
  // `grams`: one per slice of the batch, or none after an error (the slices
  // are then computed when the round closes). Ignored if Expect came between.
  void Finish(std::vector<SliceGram> grams);
  // Whether the rank's bytes of the slice are being read at this moment.
  bool Reading(int32_t rank, int32_t slice) const;

  // The round closes with `rows`: nothing more is ready. Moves out what has
  // been computed for them: by slice, empty where there is nothing.
  std::vector<std::optional<SliceGram>> TakeResults(
      const std::vector<RoundRow>& rows);

 private:
  std::vector<RoundRow> rows_;
  std::vector<int> num_landed_;  // by slice
  std::vector<int32_t> ready_;   // in the order of becoming so
  std::vector<std::optional<SliceGram>> results_;  // by slice
  std::optional<Batch> reading_;
  bool reading_is_stale_ = false;
};

bool SameRows(const std::vector<RoundRow>& a, const std::vector<RoundRow>& b);

}  // namespace agg

#endif  // AGG_SERVER_ROUND_EARLY_GRAMS_H_
