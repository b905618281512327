// How a warp of the tensor cores' Gram reads a panel of rows: whole lines of
// memory, by way of a ring in shared memory. Device code.
//
// Four lanes share a row when they multiply, and have 64 bytes of it at a time.
// Copied so, 8 rows at once, half a line each, an H100 gave 70 to 76% of its
// copy bandwidth; lines are copied whole, by 8 lanes each, and what a lane
// multiplies was copied by others. So a step takes a barrier of the warp, which
// also says that all lanes have read the slot that is filled next. Where a
// line's pieces lie is in gram_schedule.h: neither copies nor reads meet in a
// bank.
#ifndef AGG_KERNELS_CUDA_TILE_RING_CUH_
#define AGG_KERNELS_CUDA_TILE_RING_CUH_

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"

namespace agg::cuda {

// A warp's ring, in shared memory.
template <int kTiles>
struct TileSlots {
  uint4 slots[TileRingSteps(kTiles)][kTiles][kTileRows * kLineLanes];
};

// One lane's part of its warp's steps through a chunk of up to kTiles tiles.
template <int kTiles>
class TileRing {
 public:
  // Number of rows of which a lane copies pieces.
  static constexpr int kCopiedRows = kTiles * kLinesPerLane;

  // `rows`: those of CopiedRow, at the chunk's begin, aligned to 16 bytes;
  // `num_bytes`: of the chunk in each. Starts to copy. All lanes of the warp
  // make the same calls.
  __device__ __forceinline__ TileRing(const char* const (&rows)[kCopiedRows],
                                      int num_bytes, int warp, int lane,
                                      TileSlots<kTiles>* ring)
      : slots_(ring->slots), lane_(lane), left_(num_bytes - warp * kLineBytes) {
#pragma unroll
    for (int r = 0; r < kCopiedRows; ++r) {
      rows_[r] = rows[r] + warp * kLineBytes + lane % kLineLanes * kLoadBytes;
    }
#pragma unroll
    for (int step = 0; step < kSteps - 1; ++step) Start(step, step);
  }

  // Waits for the warp's next step. False: there is none.
  __device__ __forceinline__ bool Next() {
    if (left_ <= 0) return false;
    WaitForCopies<kSteps - 2>();
    JoinWarp();
    // The slot that was read last.
    Start(kSteps - 1, slot_ == 0 ? kSteps - 1 : slot_ - 1);
    return true;
  }

  // The lane's 16 bytes of each tile in half a line; zeros beyond the chunk's
  // end. REQUIRES: the last Next() was true.
  __device__ __forceinline__ void Read(int half,
                                       Packed (&loads)[kTiles]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const uint4 v = slots_[slot_][t][LineSlot(LaneRow(lane_),
                                                half * kQuad + lane_ % kQuad)];
      loads[t] = Packed{{v.x, v.y, v.z, v.w}};
    }
  }

  // To the next step, when all of this one was read.
  __device__ __forceinline__ void Advance() {
#pragma unroll
    for (int r = 0; r < kCopiedRows; ++r) rows_[r] += kStride;
    slot_ = slot_ == kSteps - 1 ? 0 : slot_ + 1;
    left_ -= kStride;
  }

 private:
  static constexpr int kSteps = TileRingSteps(kTiles);
  static constexpr int kStride = kGramWarps * kLineBytes;

  // Copies what comes `ahead` steps after the next one to a slot: an empty
  // group if there is none, so that their number tells which step has arrived.
  __device__ __forceinline__ void Start(int ahead, int slot) {
    const int left = left_ - ahead * kStride;
    if (left >= kLineBytes) {
#pragma unroll
      for (int r = 0; r < kCopiedRows; ++r) {
        CopyAsync(To(slot, r), rows_[r] + ahead * kStride);
      }
    } else if (left > 0) {
      const int of_lane = left - lane_ % kLineLanes * kLoadBytes;
#pragma unroll
      for (int r = 0; r < kCopiedRows; ++r) {
        CopySomeAsync(To(slot, r), rows_[r] + ahead * kStride, of_lane);
      }
    }
    CommitCopies();
  }

  // Where the lane's piece of its row number r goes.
  __device__ __forceinline__ SharedAt To(int slot, int r) const {
    return SharedAtOf(&slots_[slot][r / kLinesPerLane][LineSlot(
        CopiedRow(lane_, r % kLinesPerLane), lane_ % kLineLanes)]);
  }

  uint4 (&slots_)[kSteps][kTiles][kTileRows * kLineLanes];
  const int lane_;
  const char* rows_[kCopiedRows];  // the lane's, at the step that is read next
  int left_;      // bytes of a row from there to the chunk's end
  int slot_ = 0;  // of that step
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_TILE_RING_CUH_
