// A round's rows as rules see them: finite ones only, loss scale removed.
#ifndef AGG_SERVER_COMBINE_COMPACTED_ROUND_H_
#define AGG_SERVER_COMBINE_COMPACTED_ROUND_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/row_info.h"

namespace agg {

// P' kept rows of P. Movable only: `tensors` may point into `owned`.
struct CompactedRound {
  CompactedRound() = default;
  CompactedRound(CompactedRound&&) = default;
  CompactedRound& operator=(CompactedRound&&) = default;
  CompactedRound(const CompactedRound&) = delete;
  CompactedRound& operator=(const CompactedRound&) = delete;

  int num_rows() const { return static_cast<int>(kept.size()); }

  std::vector<int> kept;  // indices of the kept rows, ascending
  std::vector<int32_t> excluded_ranks;
  std::vector<RowInfo> rows;     // P'
  std::vector<double> scales;    // P': 1 / loss_scale
  std::vector<double> examples;  // P'

  // One P' x P' matrix per tensor. They point at the caller's matrices where
  // those need no change, else into `owned`.
  std::vector<const GramMatrix*> tensors;
  std::vector<GramMatrix> owned;

  // Sum over tensors in manifest order; compensated only if all of them are.
  GramMatrix total;
};

// Excludes from all tensors each row that has a non-finite diagonal entry in
// any, before or after its loss scale is removed (G_ij / (s_i s_j)). With no
// row kept, `tensors` is empty.
// REQUIRES: every tensor is rows.size() square, and outlives the result.
CompactedRound CompactRound(absl::Span<const RowInfo> rows,
                            absl::Span<const GramMatrix> tensors);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_COMPACTED_ROUND_H_
