// Landing memory of gradient rows: one buffer per rank, made when the rank
// first joins, and used by all later sessions of the rank.
#ifndef AGG_SERVER_INGEST_GRADIENT_ROWS_H_
#define AGG_SERVER_INGEST_GRADIENT_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
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

  // Memory for a row. All of it is touched (and pinned, for a device), so this
  // may take long; it needs no lock. Errors are those of Backend::Allocate.
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate() const;
  // Makes it the rank's row. REQUIRES: row(rank) == nullptr.
  void Add(int32_t rank, std::unique_ptr<Buffer> buffer);
  int64_t num_rows() const { return num_rows_; }

  // Null until Add was called for the rank.
  const Buffer* row(int32_t rank) const { return rows_[rank].get(); }
  // Where a slice (its position in the layout) of the rank's row lands, and how
  // many bytes it has. REQUIRES: row(rank) != nullptr.
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
