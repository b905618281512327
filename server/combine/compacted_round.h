// A round's rows as rules see them: finite ones only, loss scale removed.
#ifndef AGG_SERVER_COMBINE_COMPACTED_ROUND_H_
#define AGG_SERVER_COMBINE_COMPACTED_ROUND_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/combine/combination_rule.h"
#include "server/combine/gram_matrix.h"

namespace agg {

// A row whose norm is far from the others'.
struct OutlierRow {
  int32_t rank = 0;
  int row = 0;              // index among the P
  double norm = 0.0;        // over all tensors, loss scale removed
  double deviations = 0.0;  // of its logarithm from the median
};

// What was found of them (outliers.h).
struct OutlierReport {
  std::vector<OutlierRow> rows;  // in the order of the ranks
  bool excluded = false;         // and they are left out
  bool too_few_rows = false;     // nobody was judged
};

// What the process of one external rule has answered about a round.
struct ExternalAnswer {
  std::string name;     // whose answer it is: ExternalOptions::name
  std::string missing;  // why there is no answer; "": there is one
  std::vector<ExternalSegment> segments;  // of the rule's scope
  double step_scale = 1.0;  // multiplies the learning rate; finite, > 0
};

// P' kept rows of P. Movable only: its matrices are the larger part of a
// coordinator's memory.
struct CompactedRound {
  CompactedRound() = default;
  CompactedRound(CompactedRound&&) = default;
  CompactedRound& operator=(CompactedRound&&) = default;
  CompactedRound(const CompactedRound&) = delete;
  CompactedRound& operator=(const CompactedRound&) = delete;

  int num_rows() const { return static_cast<int>(kept.size()); }

  size_t num_committed = 0;  // P
  size_t num_tensors = 0;    // of the job, whether or not a row is kept
  std::vector<int> kept;     // indices of the kept rows, ascending
  std::vector<int32_t> excluded_ranks;
  OutlierReport outliers;        // among excluded_ranks if they are excluded
  std::vector<RowInfo> rows;     // P'
  std::vector<double> scales;    // P': 1 / loss_scale
  std::vector<double> examples;  // P'

  // One P' x P' matrix per tensor; none if no row is kept.
  std::vector<GramMatrix> tensors;

  // Sum over tensors in manifest order; compensated only if all of them are.
  GramMatrix total;

  // Answers of external rules about these rows, also those that are missing.
  std::vector<ExternalAnswer> external;

  // Where the tensor's group is in StepScaleOptions::groups, for each tensor;
  // empty unless gains are per group.
  std::vector<int32_t> group_of_tensor;
};

// Plain sums over the tensors of each of `num_groups` groups, in manifest
// order; one without rows for a group without tensors.
// REQUIRES: group_of_tensor has a place below num_groups for each tensor.
std::vector<GramMatrix> SumGroups(const CompactedRound& round,
                                  size_t num_groups);

// Excludes from all tensors each row that has a non-finite diagonal entry in
// any, before or after its loss scale is removed (G_ij / (s_i s_j)), or of
// which these entries have no finite sum. The matrices are changed in place.
// REQUIRES: every tensor is rows.size() square.
CompactedRound CompactRound(absl::Span<const RowInfo> rows,
                            std::vector<GramMatrix> tensors);

// Makes the round from matrices of the rows `present` (indices, ascending)
// alone. The others are excluded as rows that are not finite are.
// REQUIRES: every tensor is present.size() square.
CompactedRound CompactRound(absl::Span<const RowInfo> rows,
                            absl::Span<const int> present,
                            std::vector<GramMatrix> tensors);

// Puts other Grams of some tensors (indices; of the rows `present`, as pushed)
// in the place of those that `*round` was made with. Its rows stay as they are.
// REQUIRES: as above; *round has a kept row.
void ReplaceTensors(absl::Span<const int> present,
                    absl::Span<const int> tensors,
                    std::vector<GramMatrix> grams, CompactedRound* round);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_COMPACTED_ROUND_H_
