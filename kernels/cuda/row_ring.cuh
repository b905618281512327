// How a lane of the Gram kernels reads rows: 16 bytes of each at a time, by way
// of a ring in shared memory that asynchronous copies fill. Device code.
//
// A lane reads what it has copied itself: that takes no barrier, only the wait
// for its own copies. Copies under way take no registers, and they begin where
// the source says so: loads to registers are moved by ptxas next to their use,
// as it was seen to do with a double buffer of registers.
#ifndef AGG_KERNELS_CUDA_ROW_RING_CUH_
#define AGG_KERNELS_CUDA_ROW_RING_CUH_

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/gram_schedule.h"
#include "kernels/cuda/load_elements.cuh"

namespace agg::cuda {

// A warp's ring, in shared memory.
template <int kLoads>
struct RingSlots {
  uint4 slots[RingSteps(kLoads)][kLoads][kWarpLanes];
};

// One lane's part of its warp's steps through a chunk. kLoads: how many rows
// the lane reads; kRowLanes: how many lanes share one (gram_schedule.h). Where
// four share one, two steps are the halves of a line: a warp adds the same
// elements in the same order as with whole lines (TileRing in gram_kernel.cu),
// so that equal rows have equal entries, whichever ring has read them.
template <int kLoads, int kRowLanes>
class RowRing {
 public:
  // `rows`: the lane's, at the chunk's begin, 16-byte aligned; `num_bytes`: of
  // the chunk in each. Starts to copy.
  __device__ __forceinline__ RowRing(const char* const (&rows)[kLoads],
                                     int num_bytes, int warp, int lane,
                                     RingSlots<kLoads>* ring)
      : slots_(ring->slots), lane_(lane), left_(num_bytes - warp * kWarpBytes) {
#pragma unroll
    for (int r = 0; r < kLoads; ++r) {
      rows_[r] = rows[r] + warp * kWarpBytes + LaneByte(lane, kRowLanes);
    }
#pragma unroll
    for (int step = 0; step < kSteps - 1; ++step) Start(step, step);
  }

  // The warp's next step: its 16 bytes of each row, zeros beyond the chunk's
  // end. False: there is none.
  __device__ __forceinline__ bool Next(Packed (&loads)[kLoads]) {
    if (left_ <= 0) return false;
    // The slot that was read last is free.
    Start(kSteps - 1, slot_ == 0 ? kSteps - 1 : slot_ - 1);
    WaitForCopies<kSteps - 1>();
    const int to_next = BytesAhead(1);
#pragma unroll
    for (int r = 0; r < kLoads; ++r) {
      const uint4 v = slots_[slot_][r][lane_];
      loads[r] = Packed{{v.x, v.y, v.z, v.w}};
      rows_[r] += to_next;
    }
    slot_ = slot_ == kSteps - 1 ? 0 : slot_ + 1;
    left_ -= to_next;
    second_half_ = !second_half_;
    return true;
  }

 private:
  static constexpr int kSteps = RingSteps(kLoads);
  static constexpr int kStepBytes = StepBytes(kRowLanes);
  // What a warp takes of a row before the next warp's turn, in how many steps.
  static constexpr int kWarpBytes =
      kStepBytes < kLineBytes ? kLineBytes : kStepBytes;
  static constexpr int kTurnSteps = kWarpBytes / kStepBytes;
  static_assert(kTurnSteps <= 2, "");
  static constexpr int kStride = kGramWarps * kWarpBytes;

  // Bytes from the step that is read next to the one `ahead` steps on.
  __device__ __forceinline__ int BytesAhead(int ahead) const {
    if (kTurnSteps == 1 || ahead % 2 == 0) return ahead / kTurnSteps * kStride;
    return ahead / 2 * kStride +
           (second_half_ ? kStride - kStepBytes : kStepBytes);
  }

  // Copies what comes `ahead` steps after the next one to a slot: an empty
  // group if there is none, so that their number tells which step has arrived.
  __device__ __forceinline__ void Start(int ahead, int slot) {
    const int begin = BytesAhead(ahead);
    const int left = left_ - begin;
    if (left >= kStepBytes) {
#pragma unroll
      for (int r = 0; r < kLoads; ++r) {
        CopyAsync(SharedAtOf(&slots_[slot][r][lane_]), rows_[r] + begin);
      }
    } else if (left > 0) {
      const int of_lane = left - LaneByte(lane_, kRowLanes);
#pragma unroll
      for (int r = 0; r < kLoads; ++r) {
        CopySomeAsync(SharedAtOf(&slots_[slot][r][lane_]), rows_[r] + begin,
                      of_lane);
      }
    }
    CommitCopies();
  }

  uint4 (&slots_)[kSteps][kLoads][kWarpLanes];
  const int lane_;
  const char* rows_[kLoads];  // of the lane, at the step that is read next
  int left_;                  // bytes of a row from there to the chunk's end
  int slot_ = 0;              // of that step
  bool second_half_ = false;  // whether that step is a line's
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_ROW_RING_CUH_
