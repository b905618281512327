// The row where it lies in the shards' memory, as a caller of the C ABI has it:
// views name it by a flag, since a tensor may lie in several pieces.
#ifndef AGG_WORKER_CLIENT_C_ROW_STORE_H_
#define AGG_WORKER_CLIENT_C_ROW_STORE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/mutex.h"
#include "worker_client/c/agg_types.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Keeps the row of one client, and its former ones. Thread-safe.
class RowStore {
 public:
  // Sets what views with in_row mean from now on. Former rows stay, since
  // pushes may still read their pieces: there is a new one only after a
  // recovery.
  void Keep(std::vector<RowView> row);

  // Reads views as ViewsOf of c_structs.h does; those with in_row are where the
  // row lies. `tensors`: the tensor of each view, or null for the manifest's
  // order. INVALID_ARGUMENT, besides, that names a view with in_row which no
  // row that is kept has.
  absl::StatusOr<std::vector<TensorView>> ViewsOf(const uint64_t* tensors,
                                                  const agg_view* views,
                                                  size_t count) const;

 private:
  mutable Mutex mutex_;
  std::list<std::vector<RowView>> rows_ ABSL_GUARDED_BY(mutex_);
};

// Fills in the first `capacity` pieces in the manifest's order; returns how
// many there are.
size_t FillPieces(const std::vector<RowView>& row, agg_piece* pieces,
                  size_t capacity);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_C_ROW_STORE_H_
