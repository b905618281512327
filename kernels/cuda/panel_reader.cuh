// Loads of the rows of a panel for the Gram kernel, as gram_schedule.h lays
// them out. Device code.
#ifndef AGG_KERNELS_CUDA_PANEL_READER_CUH_
#define AGG_KERNELS_CUDA_PANEL_READER_CUH_

#include "kernels/cuda/chunk.h"
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"

namespace agg::cuda {

// What a lane reads of the rows of a panel.
template <class Element, int kTiles, int kUnroll>
class PanelReader {
 public:
  using Storage = typename Element::Storage;

  __device__ __forceinline__ PanelReader(const GramLaunch& p,
                                         const Chunk& chunk, int first_row,
                                         int lane) {
    const int group_rows = kTiles == 1 ? GroupRows(p.num_rows) : kTileRows;
    lane_element_ = LaneElement(lane, Element::kPerLoad, group_rows);
    window_ = WindowElements(Element::kPerLoad, group_rows);
    const void* const* const rows = ArrayOf(p.args, p.rows);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int row = ExistingRow(
          first_row + t * kTileRows + LaneRow(lane, group_rows), p.num_rows);
      rows_[t] = static_cast<const Storage*>(rows[row]) + chunk.begin;
    }
  }

  __device__ __forceinline__ int step_elements() const {
    return window_ * kUnroll;
  }

  // Elements [step * step_elements(), + step_elements()) of all rows.
  __device__ __forceinline__ void Load(int step,
                                       Packed (&to)[kUnroll][kTiles]) const {
    const int at = step * step_elements() + lane_element_;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        to[u][t] = LoadPacked(rows_[t] + at + u * window_);
      }
    }
  }

  // As Load, for a chunk that ends within the step: zeros beyond its end.
  __device__ __forceinline__ void LoadTail(
      int step, int num_elements, Packed (&to)[kUnroll][kTiles]) const {
    const int at = step * step_elements() + lane_element_;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int left = num_elements - (at + u * window_);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        to[u][t] = LoadSome<Element>(rows_[t] + at + u * window_, left);
      }
    }
    JoinWarp();
  }

 private:
  const Storage* rows_[kTiles];  // of the lane, at the chunk's begin
  int lane_element_;
  int window_;
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_PANEL_READER_CUH_
