// How the kernels of Update read: by way of a ring in shared memory that
// asynchronous copies fill. Device code.
//
// A piece is 512 bytes of a row, or of the parameters or the state, that lie
// one behind the other: a warp's copy, 16 bytes per lane. It holds up to four
// quads: 4 elements per lane, those of all lanes one behind the other. So a
// lane works on the same elements of every array, whatever the size of its
// elements, and what it loads and stores of float32 is one whole piece per
// warp. A group is two pieces, which are started, awaited and read at a time:
// what is done once per group costs half of it per piece.
//
// Copies under way take no registers, and they begin where the source says so:
// loads to registers are moved by ptxas next to their use.
#ifndef AGG_KERNELS_CUDA_PIECE_RING_CUH_
#define AGG_KERNELS_CUDA_PIECE_RING_CUH_

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/load_elements.cuh"

namespace agg::cuda {

inline constexpr int kUpdateThreads = 256;  // of a block
inline constexpr int kUpdateLanes = 32;     // of a warp
inline constexpr int kUpdateWarps = kUpdateThreads / kUpdateLanes;
inline constexpr int kPerThread = 4;  // elements of a quad
inline constexpr int kQuadElements = kPerThread * kUpdateLanes;  // of a warp
inline constexpr int kPieceLaneBytes = 16;
inline constexpr int kPieceBytes = kPieceLaneBytes * kUpdateLanes;
inline constexpr int kGroupPieces = 2;
inline constexpr int kPieceScales = 2;  // of a piece of int8
// Groups in a warp's ring. All but one are under way: 24 KB per block.
inline constexpr int kRingGroups = 4;

// Quads in a piece of a row: 1, 2 or 4.
template <class Element>
inline constexpr int kQuads =
    kPieceLaneBytes /
    (kPerThread * static_cast<int>(sizeof(typename Element::Storage)));

// Elements that a warp, or a block, works on at a time.
template <class Element>
inline constexpr int kPerWarpStep = kQuads<Element>* kQuadElements;
template <class Element>
inline constexpr int kPerStep = kPerWarpStep<Element>* kUpdateWarps;

// A group in shared memory.
struct GroupSlot {
  uint4 pieces[kGroupPieces][kUpdateLanes];
  float scales[kGroupPieces][kPieceScales];  // of int8
};

// A block's ring, in shared memory.
struct PieceSlots {
  GroupSlot slots[kUpdateWarps][kRingGroups];
};

// A warp's part of a block's ring. All lanes of the warp make the same calls:
// each group that is committed is awaited once, in order.
template <class Element>
class PieceRing {
 public:
  __device__ __forceinline__ explicit PieceRing(PieceSlots* ring)
      : end_(InRegister(SharedAtOf(&ring->slots[threadIdx.x / kUpdateLanes]) +
                        kRingGroups * kSlotBytes + Lane() * kPieceLaneBytes)),
        read_(end_ - kSlotBytes),
        write_(read_) {}

  // Begins anew: called before the first groups are started, and again when all
  // were awaited.
  __device__ __forceinline__ void Restart() { write_ = read_; }
  // Makes room for one of the first groups.
  __device__ __forceinline__ void Advance() { write_ = Behind(write_); }

  // Waits for the next group, and makes room for another one in the place of
  // the group before, which all lanes have read. It is to be started, or not,
  // and committed.
  __device__ __forceinline__ void Await() {
    WaitForCopies<kRingGroups - 2>();
    if constexpr (kQuads < Element >> 1) JoinWarp();  // all lanes' copies
    write_ = read_;
    read_ = Behind(read_);
  }

  // Starts to copy the lane's 16 bytes at `from`, as piece `piece` of the
  // group.
  __device__ __forceinline__ void Start(int piece, const void* from) {
    CopyAsync(write_ + piece * kPieceBytes, from);
  }
  // Starts a copy as Start does, with zeros from `num_bytes` (perhaps <= 0) on.
  __device__ __forceinline__ void StartSome(int piece, const void* from,
                                            int num_bytes) {
    CopySomeAsync(write_ + piece * kPieceBytes, from, num_bytes);
  }
  // Starts to copy scale number Lane() of a piece of int8 from `from`, or a
  // zero if `reads` is false. REQUIRES: Lane() < kPieceScales.
  __device__ __forceinline__ void StartScale(int piece, const void* from,
                                             bool reads) {
    CopyWordAsync(ScaleAt(write_, piece) + Lane() * sizeof(float), from, reads);
  }

  // Returns the lane's quad `quad` of a row, of the group that was awaited
  // last.
  __device__ __forceinline__ Packed Quad(int piece, int quad) const {
    constexpr int kLaneBytes = sizeof(typename Element::Quad);
    return PackedOf(LoadShared<typename Element::Quad>(
        read_ - Lane() * (kPieceLaneBytes - kLaneBytes) + piece * kPieceBytes +
        quad * (kPieceBytes / kQuads<Element>)));
  }
  // Reads the lane's elements of the parameters or the state, which have one
  // quad, of the group that was awaited last.
  __device__ __forceinline__ void Floats(int piece,
                                         float (&x)[kPerThread]) const {
    const Packed p = PackedOf(LoadShared<uint4>(read_ + piece * kPieceBytes));
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) x[e] = F32::ToFloat(p, e);
  }
  __device__ __forceinline__ float Scale(int piece, int scale) const {
    return LoadShared<float>(ScaleAt(read_, piece) + scale * sizeof(float));
  }

 private:
  static constexpr int kSlotBytes = sizeof(GroupSlot);

  __device__ __forceinline__ static unsigned Lane() {
    return threadIdx.x % kUpdateLanes;
  }
  __device__ __forceinline__ SharedAt Behind(SharedAt slot) const {
    slot += kSlotBytes;
    return slot == end_ ? slot - kRingGroups * kSlotBytes : slot;
  }
  __device__ __forceinline__ static SharedAt ScaleAt(SharedAt slot, int piece) {
    return slot - Lane() * kPieceLaneBytes + offsetof(GroupSlot, scales) +
           piece * sizeof(GroupSlot::scales[0]);
  }

  // Addresses of slots, each at the lane's place in it.
  const SharedAt end_;  // behind the last one
  SharedAt read_;       // the group that was awaited last
  SharedAt write_;      // the one that is started
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_PIECE_RING_CUH_
