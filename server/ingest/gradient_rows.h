// Landing memory of gradient rows: one buffer per rank, made when the rank
// first joins and kept for whoever has the rank later.
#ifndef AGG_SERVER_INGEST_GRADIENT_ROWS_H_
#define AGG_SERVER_INGEST_GRADIENT_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "server/ingest/shard_layout.h"

namespace agg {

// Thread-compatible. Buffers stay where they are, so pointers into them may be
// used without the owner's lock.
class GradientRows {
 public:
  // `backend` and `layout` outlive it.
  GradientRows(Backend* backend, const ShardLayout* layout, DType dtype,
               int32_t max_workers);

  // Makes the rank's row if there is none. RESOURCE_EXHAUSTED as Allocate.
  absl::Status EnsureRow(int32_t rank);
  int64_t num_rows() const { return num_rows_; }

  // Null before EnsureRow(rank).
  const Buffer* row(int32_t rank) const { return rows_[rank].get(); }
  // REQUIRES: EnsureRow(rank). Where local slice `slice` of the rank's row
  // lands, and its bytes.
  char* SliceAddress(int32_t rank, int32_t slice) const;
  int64_t SliceBytes(int32_t slice) const;

 private:
  Backend* const backend_;
  const ShardLayout* const layout_;
  const DType dtype_;
  int64_t num_rows_ = 0;
  std::vector<std::unique_ptr<Buffer>> rows_;
};

}  // namespace agg

#endif  // AGG_SERVER_INGEST_GRADIENT_ROWS_H_
