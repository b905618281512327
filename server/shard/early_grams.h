// Which slices' Grams can be computed before their round closes, and the
// results: bookkeeping alone, without a thread or a backend.
#ifndef AGG_SERVER_SHARD_EARLY_GRAMS_H_
#define AGG_SERVER_SHARD_EARLY_GRAMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/buffer.h"
#include "server/round/phase.h"

namespace agg {

// A slice is complete when all expected rows have landed it. The expected rows
// are those with which the open round will probably close. If it closes with
// others, the early results are thrown away, and nothing else is lost. Slices
// are positions in the shard's layout. Thread-compatible: its owner's lock
// protects it.
class EarlyGrams {
 public:
  // A batch has at most 32 slices, so that a device computes one batch while
  // the rows of the next are copied there.
  static constexpr size_t kMaxSlices = 32;

  // What the bookkeeping of so many slices takes. The Grams themselves become
  // those of Close, and are counted there.
  static int64_t Bytes(int64_t num_slices);
  // What it takes now, without the numbers in the Grams.
  int64_t bytes() const;

  struct Batch {
    std::vector<RoundRow> rows;
    std::vector<int32_t> slices;  // ascending
  };

  // A round begins or its expected rows change: forgets all slices and
  // results. `rows` ascends by rank; if it is empty, nothing is early.
  void Expect(std::vector<RoundRow> rows, int num_slices);
  const std::vector<RoundRow>& rows() const { return rows_; }

  // To be called when all of rows() have landed the slice; may be repeated.
  void SliceComplete(int32_t slice);

  bool any_ready() const { return !ready_.empty(); }
  // The slices that became complete first. Their bytes are being read until
  // Finish or GiveUp. `ranges`: where each slice of the layout lies.
  // `max_products`: of a batch of several slices at most
  // (Backend::gram_products_at_once), since a phase and a new session's frames
  // wait for it. REQUIRES: any_ready(), and no batch is being read.
  Batch Take(const std::vector<ElementRange>& ranges, double max_products);
  // `grams`: one per slice of the batch, in its order. They are thrown away if
  // Expect was called since Take.
  void Finish(std::vector<SliceGram> grams);
  // The batch has failed: no more are taken in this round, and its Close
  // computes what is missing.
  void GiveUp();
  // Whether the rank's bytes of the slice are being read at this moment.
  bool Reading(int32_t rank, int32_t slice) const;

  // The round closes with `rows`: nothing is ready any more. Moves out the
  // results for these rows, by slice; empty where there is none.
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

}  // namespace agg

#endif  // AGG_SERVER_SHARD_EARLY_GRAMS_H_
