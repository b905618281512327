// A list, whose elements stay where they are.
#include "worker_client/c/row_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/field_error.h"
#include "worker_client/c/c_structs.h"

namespace agg {
namespace {

bool SamePieces(const RowView& a, const RowView& b) {
  return std::equal(
      a.pieces.begin(), a.pieces.end(), b.pieces.begin(), b.pieces.end(),
      [](const TensorPiece& x, const TensorPiece& y) {
        return x.begin == y.begin && x.num_elements == y.num_elements &&
               x.data == y.data;
      });
}

}  // namespace

void RowStore::Keep(std::vector<RowView> row) {
  MutexLock lock(&mutex_);
  if (!rows_.empty() && std::equal(row.begin(), row.end(), rows_.back().begin(),
                                   rows_.back().end(), &SamePieces)) {
    return;
  }
  rows_.push_back(std::move(row));
}

absl::StatusOr<std::vector<TensorView>> RowStore::ViewsOf(
    const uint64_t* tensors, const agg_view* views, size_t count) const {
  absl::StatusOr<std::vector<TensorView>> read = agg::ViewsOf(views, count);
  if (!read.ok()) return read;
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < count; ++i) {
    if (views[i].in_row == 0) continue;
    const uint64_t tensor = tensors == nullptr ? i : tensors[i];
    if (rows_.empty() || tensor >= rows_.back().size()) {
      return FieldError(absl::StrCat("views[", i, "].in_row"), "1",
                        rows_.empty() ? "0 before agg_row_pieces"
                                      : "1 for tensors of the manifest");
    }
    (*read)[i] = rows_.back()[tensor].view();
  }
  return read;
}

size_t FillPieces(const std::vector<RowView>& row, agg_piece* pieces,
                  size_t capacity) {
  size_t count = 0;
  for (size_t tensor = 0; tensor < row.size(); ++tensor) {
    for (const TensorPiece& piece : row[tensor].pieces) {
      if (count < capacity) {
        pieces[count] = {piece.data,
                         piece.begin,
                         piece.num_elements,
                         static_cast<uint64_t>(tensor),
                         static_cast<int32_t>(row[tensor].dtype),
                         0};
      }
      ++count;
    }
  }
  return count;
}

}  // namespace agg
