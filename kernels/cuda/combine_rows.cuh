// The weighted sum of rows, and the parameters and the state of the same
// elements, in the order in which Update's kernels use them. Device code.
//
// What a warp does per group of pieces decides whether memory or instructions
// bound Update. So whole groups take the shortest way there is, StartWhole, and
// all that is seldom lies in a branch of its own, StartOther.
#ifndef AGG_KERNELS_CUDA_COMBINE_ROWS_CUH_
#define AGG_KERNELS_CUDA_COMBINE_ROWS_CUH_

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/combine_stage.cuh"
#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/piece_ring.cuh"
#include "kernels/cuda/update_kernel.h"

namespace agg::cuda {

// What a block has in shared memory.
template <class Element>
struct CombineShared {
  CombineStage<Element> stage;
  PieceSlots ring;
};

// A thread's way through its block's chunk: kPerStep elements of the block at a
// time, of which the thread has kQuads quads. Of each step it takes the sum of
// the rows, then the quads' parameters and state. All of it is fetched ahead,
// across steps. All threads of the block make the same calls, those beyond the
// chunk's end, too: they get anything.
template <class Element>
class Combiner {
 public:
  // `num_arrays`: 0, or 1 for the parameters and 1 for each array of state.
  __device__ __forceinline__ Combiner(const UpdateLaunch& p, const Chunk& chunk,
                                      int num_arrays,
                                      CombineShared<Element>* shared)
      : p_(p),
        chunk_(chunk),
        num_arrays_(num_arrays),
        stage_(shared->stage),
        ring_(&shared->ring) {}

  // Returns where the thread's elements of quad `quad` begin, from the chunk's
  // begin on.
  __device__ __forceinline__ static int Offset(int base, int quad) {
    return base + WarpOffset() + quad * kQuadElements + Lane() * kPerThread;
  }

  // Computes the sums of the step at `base`, rounded to float32. Steps come in
  // order.
  __device__ __forceinline__ void Sum(
      int base, float (&sums)[kQuads<Element>][kPerThread]) {
    Sums sum = {};
    for (int first = 0; first < p_.num_rows; first += kStageRows) {
      const int num_rows = min(kStageRows, p_.num_rows - first);
      if (base == 0 || p_.num_rows > kStageRows) {
        const int num_groups =
            stage_.Fill(p_, chunk_, first, num_rows, num_arrays_);
        rows_end_ = Stage() + num_rows * kSourceBytes;
        step_end_ = Stage() + num_groups * kSourcesBytes;
        Begin(base);
      }
      AddStage(num_rows, sum);
    }
    piece_ = p_.num_rows % kGroupPieces;
#pragma unroll
    for (int q = 0; q < kQuads<Element>; ++q) {
#pragma unroll
      for (int e = 0; e < kPerThread; ++e) {
        sums[q][e] = static_cast<float>(sum[q][e]);
      }
    }
  }

  // Reads the next array of the next quad: the parameters, then the arrays of
  // state.
  __device__ __forceinline__ void NextArray(float (&x)[kPerThread]) {
    if (piece_ == 0) NextGroup();
    ring_.Floats(piece_, x);
    piece_ ^= 1;
  }

 private:
  using InStage = CombineStage<Element>;
  using Sums = double[kQuads<Element>][kPerThread];

  __device__ __forceinline__ static int Lane() {
    return static_cast<int>(threadIdx.x) % kUpdateLanes;
  }
  __device__ __forceinline__ static int LaneByte() {
    return Lane() * kPieceLaneBytes;
  }
  __device__ __forceinline__ static int WarpOffset() {
    return static_cast<int>(threadIdx.x) / kUpdateLanes * kPerWarpStep<Element>;
  }
  // Returns the stage's address. It is formed anew where it is needed, which is
  // seldom, so that it takes no register meanwhile.
  __device__ __forceinline__ SharedAt Stage() const {
    return SharedAtOf(&stage_);
  }
  __device__ __forceinline__ int NumBytes() const {
    return chunk_.num_elements * kBytes;
  }

  // Starts the first groups of what is used until the stage is filled again:
  // all steps, if all rows fit the stage, else what it has of one step.
  __device__ __forceinline__ void Begin(int base) {
    SetStep((base + WarpOffset()) * kBytes);
    ring_.Restart();
#pragma unroll 1
    for (int i = 0; i < kRingGroups - 1; ++i) {
      ring_.Advance();
      StartNext();
    }
  }

  // Goes on to the step of which the warp's part of a row begins `at` bytes
  // from the chunk's begin; from its end on there is nothing.
  __device__ __forceinline__ void SetStep(int at) {
    next_ = Stage();
    whole_end_ =
        NumBytes() - at >= kPieceBytes ? step_end_ - kSourcesBytes : next_;
    row_at_ = at + LaneByte();
    array_at_ = at * kQuads<Element> + LaneByte();
  }

  // Waits for the next group, and starts the one that comes kRingGroups - 1
  // after it.
  __device__ __forceinline__ void NextGroup() {
    ring_.Await();
    StartNext();
  }
  __device__ __forceinline__ void StartNext() {
    if (next_ < whole_end_) {
      StartWhole();
    } else {
      StartOther();
    }
    CommitCopies();
  }

  // Starts a group that lies within the chunk, but is not a step's last one.
  __device__ __forceinline__ void StartWhole() {
    const auto sources = LoadShared<ulonglong2>(next_);
    const char* const first = From(sources.x, 0);
    const char* const second = From(sources.y, 1);
    ring_.Start(0, first);
    ring_.Start(1, second);
    if constexpr (kHasScales<Element>) StartScales();
    next_ += kSourcesBytes;
  }

  // Starts any other group, perhaps one of nothing; after a step's last group
  // comes the next step.
  __device__ __forceinline__ void StartOther() {
    const int warp_at = row_at_ - LaneByte();
    // The last step gets zeros beyond the chunk's end, since they are read.
    if (warp_at - WarpOffset() * kBytes < NumBytes()) {
      const auto sources = LoadShared<ulonglong2>(next_);
      const auto ends = LoadShared<longlong2>(next_ + kEndsAt);
      ring_.StartSome(0, From(sources.x, 0), static_cast<int>(ends.x) - At(0));
      if (sources.y != 0) {
        ring_.StartSome(1, From(sources.y, 1),
                        static_cast<int>(ends.y) - At(1));
      }
      if constexpr (kHasScales<Element>) StartScales();
    }
    next_ += kSourcesBytes;
    if (next_ == step_end_) {
      SetStep(p_.num_rows > kStageRows ? NumBytes() + WarpOffset() * kBytes
                                       : warp_at + kPerStep<Element> * kBytes);
    }
  }

  // Whether piece `piece` of the group at next_ is a row's.
  __device__ __forceinline__ bool IsRow(int piece) const {
    return next_ + piece * kSourceBytes < rows_end_;
  }

  // Returns how many bytes behind the source of the group's piece `piece` the
  // lane's bytes begin. With float32 rows it is the same for all pieces.
  __device__ __forceinline__ int At(int piece) const {
    return kQuads<Element> == 1 || IsRow(piece) ? row_at_ : array_at_;
  }
  __device__ __forceinline__ const char* From(uint64_t source,
                                              int piece) const {
    return reinterpret_cast<const char*>(source) +
           static_cast<uint32_t>(At(piece));
  }

  // Starts to copy the lane's scales of the group's rows; zeros beyond the
  // chunk's end.
  __device__ __forceinline__ void StartScales() {
    if (Lane() >= kPieceScales || !IsRow(0)) return;
    const int first = row_at_ - LaneByte() + Lane() * kScaleElements;
    const bool is_there = first < chunk_.num_elements;
    const auto scales = LoadShared<ulonglong2>(next_ + kScalesAt);
    const uint32_t at =
        is_there ? first / kScaleElements * static_cast<int>(sizeof(float)) : 0;
    ring_.StartScale(0, reinterpret_cast<const char*>(scales.x) + at, is_there);
    if (!IsRow(1)) return;
    ring_.StartScale(1, reinterpret_cast<const char*>(scales.y) + at, is_there);
  }

  // Adds the stage's rows.
  __device__ __forceinline__ void AddStage(int num_rows, Sums& sum) {
    SharedAt coefficients = Stage() + offsetof(InStage, coefficients);
    const int num_whole = num_rows / kGroupPieces;
    const SharedAt end = coefficients + num_whole * sizeof(double2);
#pragma unroll 1
    while (coefficients != end) {
      NextGroup();
      const auto both = LoadShared<double2>(coefficients);
      AddRow(0, both.x, sum);
      AddRow(1, both.y, sum);
      coefficients += sizeof(double2);
    }
    if (num_rows % kGroupPieces != 0) {
      NextGroup();
      AddRow(0, LoadShared<double>(coefficients), sum);
    }
  }

  // Adds piece `piece` of the group, which is a row's.
  __device__ __forceinline__ void AddRow(int piece, double coefficient,
                                         Sums& sum) {
#pragma unroll
    for (int q = 0; q < kQuads<Element>; ++q) {
      const Packed quad = ring_.Quad(piece, q);
      double scale = 1.0;
      if constexpr (kHasScales<Element>) {
        scale = ring_.Scale(piece, q * kQuadElements / kScaleElements);
      }
#pragma unroll
      for (int e = 0; e < kPerThread; ++e) {
        double value;
        if constexpr (kHasScales<Element>) {
          value = Element::ToDouble(quad, e) * scale;  // 8 and 24 bits: exact
        } else {
          value = Element::ToFloat(quad, e);
        }
        sum[q][e] = fma(coefficient, value, sum[q][e]);
      }
    }
  }

  static constexpr int kBytes = sizeof(typename Element::Storage);
  static constexpr int kSourceBytes = sizeof(const char*);
  static constexpr int kSourcesBytes = kGroupPieces * kSourceBytes;
  // Distances in bytes from a group's sources to its ends, and to its scales.
  static constexpr int kEndsAt = offsetof(InStage, ends);
  static constexpr int kScalesAt = offsetof(InStage, scales);

  const UpdateLaunch& p_;
  const Chunk& chunk_;
  const int num_arrays_;
  CombineStage<Element>& stage_;
  PieceRing<Element> ring_;
  // Places in the stage: the ends of the rows and of all sources, the group
  // that is started next, and the end of those that StartWhole starts.
  SharedAt rows_end_ = 0;
  SharedAt step_end_ = 0;
  SharedAt next_ = 0;
  SharedAt whole_end_ = 0;
  // Places, in bytes from the chunk's begin, where the lane's bytes of a row,
  // and of an array's first quad, begin in the step that is started.
  int row_at_ = 0;
  int array_at_ = 0;
  // Piece that NextArray takes next, of the group that was awaited last; 0: it
  // takes the first piece of the next group.
  int piece_ = 0;
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_COMBINE_ROWS_CUH_
