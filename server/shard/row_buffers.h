// The rows of a round for one call of the backend.
#ifndef AGG_SERVER_SHARD_ROW_BUFFERS_H_
#define AGG_SERVER_SHARD_ROW_BUFFERS_H_

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "server/ingest/gradient_rows.h"
#include "server/round/phase.h"

namespace agg {

// Keeps them alive: a session may end while its row is read. Thread-compatible.
class RowBuffers {
 public:
  RowBuffers() = default;
  RowBuffers(const GradientRows& rows, const std::vector<RoundRow>& named) {
    for (const RoundRow& row : named) Add(rows, row);
  }

  // REQUIRES: there is such a row.
  void Add(const GradientRows& rows, const RoundRow& row) {
    owners_.push_back(rows.FindAttempt(row.rank, row.session, row.attempt));
    pointers_.push_back(owners_.back().get());
  }

  absl::Span<const Buffer* const> pointers() const { return pointers_; }

 private:
  std::vector<std::shared_ptr<const Buffer>> owners_;
  std::vector<const Buffer*> pointers_;
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_ROW_BUFFERS_H_
