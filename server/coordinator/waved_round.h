// What the waves of a round have computed, and what is to be said of all of it
// (P43): a pure collection.
#ifndef AGG_SERVER_COORDINATOR_WAVED_ROUND_H_
#define AGG_SERVER_COORDINATOR_WAVED_ROUND_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "server/combine/compacted_round.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/row_info.h"
#include "server/round/round_report.h"

namespace agg {

// Rows are indices of the round's committed rows, ascending. Thread-compatible.
class WavedRound {
 public:
  explicit WavedRound(size_t num_rows) : num_left_out_(num_rows) {}

  // Adds the next tensor of the manifest: the rows of its Gram, as pushed, and
  // those of them that are in its sum. If `used` is empty the tensor is as it
  // was, and `why` says why.
  void Add(const std::vector<int>& rows, const std::vector<int>& used,
           GramMatrix gram, const std::string& why);

  size_t num_tensors() const { return tensors_.size(); }
  size_t num_unchanged() const { return num_unchanged_; }
  // Reason why the first tensor that is as it was has not changed; "": there is
  // no such tensor.
  const std::string& why_unchanged() const { return why_unchanged_; }

  // Rows that some tensors lack, as the report names them.
  std::vector<PartialRow> PartialRows(absl::Span<const RowInfo> rows) const;
  // The round with the rows that all tensors have: the others are excluded.
  // To be called once, at the end.
  CompactedRound TakeWhole(absl::Span<const RowInfo> rows);

 private:
  struct Tensor {
    std::vector<int> rows;
    GramMatrix gram;
  };
  std::vector<Tensor> tensors_;
  std::vector<int> num_left_out_;  // by row: tensors without it
  size_t num_unchanged_ = 0;
  std::string why_unchanged_;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_WAVED_ROUND_H_
