// How the kernels of Update read: by way of a ring in shared memory that
// asynchronous copies fill. Device code.
//
// A piece is 512 bytes of a row, or of the parameters or the state, that lie
// one behind the other: a warp's copy, 16 bytes per lane. It holds up to four
// quads: 4 elements per lane, those of all lanes one behind the other. So a
// lane works on the same elements of every array, whatever the size of its
// elements, and what it loads and stores of float32 is one whole piece per
// warp.
//
// Copies under way take no registers, and they begin where the source says so:
// loads to registers are moved by ptxas next to their use.
#ifndef AGG_KERNELS_CUDA_PIECE_RING_CUH_
#define AGG_KERNELS_CUDA_PIECE_RING_CUH_

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
// Of a warp. All but one are under way: 28 KB per block.
inline constexpr int kRingPieces = 8;

// Quads in a piece of a row: 1, 2 or 4.
template <class Element>
inline constexpr int kQuads =
    kPieceLaneBytes /
    (kPerThread * static_cast<int>(sizeof(typename Element::Storage)));

// Elements that a block works on at a time.
template <class Element>
inline constexpr int kPerStep = kQuads<Element>* kQuadElements* kUpdateWarps;

// A block's ring, in shared memory.
template <class Element>
struct RingSlots {
  // The scales of a piece are 2 of the 8 in 32 bytes.
  static constexpr int kScaleWarps = kHasScales<Element> ? kUpdateWarps : 1;
  uint4 pieces[kUpdateWarps][kRingPieces][kUpdateLanes];
  uint4 scales[kScaleWarps][kRingPieces][2];
};

// A warp's part of a block's ring. All lanes of the warp make the same calls:
// each piece that is started is awaited by one call of Next, in order.
template <class Element>
class PieceRing {
 public:
  __device__ __forceinline__ explicit PieceRing(RingSlots<Element>* slots)
      : slots_(*slots) {}

  // Makes room for a piece: all lanes have read the one before. Then it is to
  // be started, or not, and committed.
  __device__ __forceinline__ void Await() {
    WaitForCopies<kRingPieces - 2>();
    if constexpr (kQuads < Element >> 1) JoinWarp();  // all lanes' copies
    read_ = read_ == kRingPieces - 1 ? 0 : read_ + 1;
  }

  // The lane's 16 bytes at `from`; zeros from `num_bytes` (perhaps <= 0) on.
  __device__ __forceinline__ void Start(const void* from, int num_bytes) {
    uint4* const to = &slots_.pieces[Warp()][write_][Lane()];
    if (num_bytes >= kPieceLaneBytes) {
      CopyAsync(to, from);
    } else {
      CopySomeAsync(to, from, num_bytes);
    }
  }

  // Of a piece of int8: the scales [first, first + num_scales), at most 2,
  // perhaps <= 0; zeros for those that Scale is asked for beyond them.
  __device__ __forceinline__ void StartScales(const float* scales,
                                              int64_t first, int num_scales) {
    if (Lane() >= 2) return;
    // From a multiple of 4 of them on, for the sake of alignment.
    const int before = static_cast<int>(first % 4);
    const int of_lane = Lane() * 4;
    CopySomeAsync(&slots_.scales[Warp()][write_][Lane()],
                  scales + (first - before + of_lane),
                  num_scales > 0 ? (before + num_scales - of_lane) * 4 : 0);
  }

  // Ends what belongs to one piece, perhaps nothing.
  __device__ __forceinline__ void Commit() {
    CommitCopies();
    write_ = write_ == kRingPieces - 1 ? 0 : write_ + 1;
  }

  // Puts what is started next where it is read next: all pieces have been read.
  __device__ __forceinline__ void Restart() {
    write_ = read_ == kRingPieces - 1 ? 0 : read_ + 1;
  }

  // Of the piece that was awaited last: the lane's elements of quad `quad`.
  __device__ __forceinline__ void Elements(int quad,
                                           float (&x)[kPerThread]) const {
    ElementsAt<Element>(Piece() + quad * (kPieceBytes / kQuads<Element>), x);
  }
  __device__ __forceinline__ void Floats(float (&x)[kPerThread]) const {
    ElementsAt<F32>(Piece(), x);
  }
  // `scale` of those that StartScales' `first` begins.
  __device__ __forceinline__ float Scale(int64_t first, int scale) const {
    return reinterpret_cast<const float*>(
        slots_.scales[Warp()][read_])[first % 4 + scale];
  }

 private:
  static constexpr int kPieceBytes = kPieceLaneBytes * kUpdateLanes;

  __device__ __forceinline__ static int Warp() {
    return static_cast<int>(threadIdx.x) / kUpdateLanes;
  }
  __device__ __forceinline__ static int Lane() {
    return static_cast<int>(threadIdx.x) % kUpdateLanes;
  }
  __device__ __forceinline__ const char* Piece() const {
    return reinterpret_cast<const char*>(slots_.pieces[Warp()][read_]);
  }

  template <class Of>
  __device__ __forceinline__ static void ElementsAt(const char* at,
                                                    float (&x)[kPerThread]) {
    using Quad = typename Of::Quad;
    const Packed p = PackedOf(reinterpret_cast<const Quad*>(at)[Lane()]);
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) x[e] = Of::ToFloat(p, e);
  }

  RingSlots<Element>& slots_;
  int read_ = kRingPieces - 1;  // the piece that was awaited last
  int write_ = 0;
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_PIECE_RING_CUH_
