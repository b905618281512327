// How many elements of how many rows cuBLAS multiplies at once. Pure.
#ifndef AGG_KERNELS_CUDA_TILE_SHAPE_H_
#define AGG_KERNELS_CUDA_TILE_SHAPE_H_

#include <cstdint>

namespace agg::cuda {

// Elements of a batch: the k of one matrix product.
inline constexpr int kBatchElements = 1024;

// How large a tile is for so many rows: num_batches batches side by side.
struct TileShape {
  int num_batches = 0;  // 0: so many rows do not fit
  int64_t row_stride() const {
    return static_cast<int64_t>(num_batches) * kBatchElements;
  }
};

// The most batches, up to 64, whose doubles and matrices each fit into
// `num_bytes`. Pure.
inline TileShape PlanTile(int64_t num_rows, int64_t num_bytes) {
  const int64_t batch_bytes = num_rows * kBatchElements * 8;
  const int64_t matrix_bytes = num_rows * num_rows * 8;
  const int64_t larger =
      batch_bytes > matrix_bytes ? batch_bytes : matrix_bytes;
  const int64_t fitting = num_bytes / larger;
  TileShape shape;
  shape.num_batches = static_cast<int>(fitting < 64 ? fitting : 64);
  return shape;
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_TILE_SHAPE_H_
