// Whether a worker writes its next row into shared memory itself (P39). Pure:
// no memory, no calls, so that a test can play every loss.
#ifndef AGG_WORKER_CLIENT_ROW_PLACEMENT_H_
#define AGG_WORKER_CLIENT_ROW_PLACEMENT_H_

#include "worker_client/row_custody.h"

namespace agg {

// The placement of rows in one region: of one session at one life of a shard. A
// worker that pushes knows that the round before is over, so that nobody reads
// its last row any more. What it may not know is whether the shard still
// writes: the bytes of a push that was never acknowledged, or the zeros of
// tensors that it left out. Then, and for a second gradient of a round, or one
// of an earlier round than the last, while the shard may be reading that, the
// row is sent, and the shard writes it when it can. Thread-compatible.
class RowPlacement {
 public:
  // Begins a push of `row`, perhaps again with the same bytes. Returns whether
  // they are written in place. `leaves_out`: the shard may have to write zeros.
  bool Begin(const RowName& row, bool leaves_out) {
    if (row == row_) return in_place_;
    const bool later = row_.session == 0 || row_.seed || row.round > row_.round;
    row_ = row;
    in_place_ = later && !row.seed && row.attempt == 0 && !shard_writes_;
    shard_writes_ |= !in_place_ || leaves_out;
    return in_place_;
  }

  // Notes that the shard has all of the row.
  void Land(const RowName& row) {
    if (row == row_) shard_writes_ = false;
  }

 private:
  RowName row_;  // of the last push; session 0: none
  bool in_place_ = false;
  bool shard_writes_ = false;  // or may still do so
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_ROW_PLACEMENT_H_
