// Weighted sum, optimizer step and publication of a chunk in one pass, or in
// two.
//
//   kernel         called by      threads        result is in
//   UpdateKernel   LaunchUpdate   256 per chunk  master, state, narrowed copy,
//                                                whether all is finite
//   CombineKernel  LaunchCombine  256 per chunk  combined
//   StepKernel     LaunchStep     256 per chunk  as of UpdateKernel
//   NormsKernel    LaunchNorms    256 per chunk  partial, 2 doubles per chunk
//   FillKernel     LaunchFill     1 per element  the array
//   NarrowKernel   LaunchNarrow   1 per element  the 16-bit array
//
// A thread steps 4 elements at a time, 16 bytes of float32: the widest access
// there is. Update is bound by memory, so everything happens in one pass: each
// row, the master and the state are read once and written once. How they are
// read ahead: piece_ring.cuh. What the results are worth: update_kernel.h.
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/piece_ring.cuh"
#include "kernels/cuda/update_kernel.h"
#include "kernels/narrow_float.h"
#include "kernels/optimizer_table.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"

namespace agg::cuda {

// ----------------------------------------------------------------------------
// Sources, in shared memory, of the pieces that Update's kernels read. Device
// code.

// Rows whose sources fit the stage: whole groups.
inline constexpr int kStageRows = 256;

// A block's stage. It has the sources of a step's pieces, in the order in which
// they are read: the rows, then of each quad the parameters and the arrays of
// state, from the chunk's begin on. Two pieces are a group; a null source: the
// group has no second piece. So rows and arrays are fetched alike, and one load
// brings what a group needs.
template <class Element>
struct CombineStage {
  static constexpr int kArrayPieces = 3 * kQuads<Element>;
  static constexpr int kPieces = kStageRows + kArrayPieces + kArrayPieces % 2;
  alignas(16) const char* sources[kPieces];  // first: Combiner adds to it
  alignas(16) int64_t ends[kPieces];  // the chunk's: bytes from the source on
  // Scales of the rows, from the chunk's begin on; for int8 only.
  alignas(16) const float* scales[kHasScales<Element> ? kStageRows : 1];
  alignas(16) double coefficients[kStageRows];

  // Sets piece `i` to row `row` of the launch.
  __device__ __forceinline__ void SetRow(int i, const UpdateLaunch& p,
                                         const Chunk& chunk, int row) {
    const auto* const from =
        static_cast<const char*>(ArrayOf(p.args, p.rows)[row]);
    sources[i] = from + BytesOf<Element>(chunk.begin);
    ends[i] = BytesOf<Element>(chunk.num_elements);
    if constexpr (kHasScales<Element>) {
      scales[i] = ScalesAt(from, p.scale_offset) + chunk.begin / kScaleElements;
    }
    coefficients[i] =
        ArrayOf(p.args, p.coefficients)[int64_t{chunk.slot} * p.num_rows + row];
  }

  // Sets piece `i` to quad `quad` of an array: array 0 is the parameters.
  __device__ __forceinline__ void SetArray(int i, const UpdateLaunch& p,
                                           const Chunk& chunk, int array,
                                           int quad) {
    const float* const from = array == 0   ? p.master
                              : array == 1 ? p.state0
                                           : p.state1;
    const int64_t at = quad * kQuadElements;
    sources[i] = reinterpret_cast<const char*>(from + (chunk.begin + at));
    ends[i] = (chunk.num_elements - at) * sizeof(float);
  }

  // Fills the stage with `num_rows` rows from `first` on, and if they are the
  // last ones with `num_arrays` arrays. All threads of the block call it.
  // Returns how many groups that is.
  __device__ __forceinline__ int Fill(const UpdateLaunch& p, const Chunk& chunk,
                                      int first, int num_rows, int num_arrays) {
    if (first + num_rows < p.num_rows) num_arrays = 0;
    const int num_pieces = num_rows + num_arrays * kQuads<Element>;
    const int num_groups = (num_pieces + 1) / kGroupPieces;
    __syncthreads();  // what was there is used up
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < num_groups * kGroupPieces;
         i += kUpdateThreads) {
      const int piece = i - num_rows;  // of the arrays
      if (i < num_rows) {
        SetRow(i, p, chunk, first + i);
      } else if (i < num_pieces) {
        SetArray(i, p, chunk, piece % num_arrays, piece / num_arrays);
      } else {
        sources[i] = nullptr;
        ends[i] = 0;
      }
      if constexpr (kHasScales<Element>) {
        if (i == num_rows && i < kStageRows) scales[i] = nullptr;
      }
    }
    __syncthreads();
    return num_groups;
  }
};

// ----------------------------------------------------------------------------
// The weighted sum of rows, and the parameters and the state of the same
// elements, in the order in which Update's kernels use them.
//
// What a warp does per group of pieces decides whether memory or instructions
// bound Update. So whole groups take the shortest way there is, StartWhole, and
// all that is seldom lies in a branch of its own, StartOther.

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

// ----------------------------------------------------------------------------
// Four elements of a thread: loaded, stepped, stored. Device code, apart from
// the kernels because several take the same steps.

inline constexpr int kBf16 = 2;  // agg::DType's value

// Four elements of a thread on their way through an optimizer.
struct Four {
  float gradient[kPerThread];
  float parameter[kPerThread];
  float state0[kPerThread];
  float state1[kPerThread];
};

// Visitor of VisitFormula: steps the four elements. The loop is unrolled
// without being asked to: the pragma is unknown to the host's compiler, which
// sees this, too.
struct StepFour {
  const StepConstants& c;
  Four* x;
  template <class Formula>
  AGG_HOST_DEVICE void operator()(Formula /*formula*/) const {
    for (int e = 0; e < kPerThread; ++e) {
      Formula::Apply(c, x->gradient[e], &x->parameter[e], &x->state0[e],
                     &x->state1[e]);
    }
  }
};

// Visitor of VisitFormula: puts what the trust ratio needs the norm of in the
// place of the four gradients. All four in one visit: a visit per element took
// so many registers that some had to be spilled.
struct DirectFour {
  const StepConstants& c;
  Four* x;
  template <class Formula>
  AGG_HOST_DEVICE void operator()(Formula /*formula*/) const {
    if constexpr (HasDirection<Formula>::value) {
      for (int e = 0; e < kPerThread; ++e) {
        x->gradient[e] = Formula::Direction(c, x->gradient[e], x->parameter[e],
                                            &x->state0[e], &x->state1[e]);
      }
    }
  }
};

__device__ __forceinline__ uint16_t Narrow(float value, int dtype) {
  return dtype == kBf16 ? Bf16OfFloat(value) : F16OfFloat(value);
}

__device__ __forceinline__ void LoadFloats(const float* at, int num_elements,
                                           float (&x)[kPerThread]) {
  if (num_elements >= kPerThread) {
    const float4 v = *reinterpret_cast<const float4*>(at);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
  } else {
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) x[e] = e < num_elements ? at[e] : 0.0f;
  }
}

__device__ __forceinline__ void StoreFloats(const float (&x)[kPerThread],
                                            int num_elements, float* at) {
  if (num_elements >= kPerThread) {
    *reinterpret_cast<float4*>(at) = make_float4(x[0], x[1], x[2], x[3]);
  } else {
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      if (e < num_elements) at[e] = x[e];
    }
  }
}

__device__ __forceinline__ void StoreNarrowed(const float (&x)[kPerThread],
                                              int num_elements, int dtype,
                                              uint16_t* at) {
  if (num_elements >= kPerThread) {
    *reinterpret_cast<ushort4*>(at) =
        make_ushort4(Narrow(x[0], dtype), Narrow(x[1], dtype),
                     Narrow(x[2], dtype), Narrow(x[3], dtype));
  } else {
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      if (e < num_elements) at[e] = Narrow(x[e], dtype);
    }
  }
}

__device__ __forceinline__ void LoadState(const UpdateLaunch& p, int64_t at,
                                          int left, Four* x) {
  if (left <= 0) return;
  LoadFloats(p.master + at, left, x->parameter);
  if (p.num_states > 0) LoadFloats(p.state0 + at, left, x->state0);
  if (p.num_states > 1) LoadFloats(p.state1 + at, left, x->state1);
}

// Whether the bits of all magnitudes are below `limit`.
template <int kCount>
__device__ __forceinline__ bool AllBelow(const float (&x)[kCount],
                                         int num_elements, uint32_t limit) {
  bool below = true;
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    below = below &&
            (e >= num_elements || (BitsOfFloat(x[e]) & 0x7fffffffu) < limit);
  }
  return below;
}

// Steps what LoadState has loaded, with the gradient that is in *x, and stores
// it. Returns whether all that it stores of the parameters is finite, as
// narrowed, too.
// REQUIRES: left > 0.
__device__ __forceinline__ bool StepAndStore(const UpdateLaunch& p,
                                             const StepConstants& constants,
                                             int64_t at, int left, Four* x) {
  // The branch is the same for the whole grid. A kernel per formula would not
  // be faster, since memory is what the kernel waits for, and would take longer
  // to compile.
  VisitFormula(p.formula, StepFour{constants, x});
  StoreFloats(x->parameter, left, p.master + at);
  if (p.num_states > 0) StoreFloats(x->state0, left, p.state0 + at);
  if (p.num_states > 1) StoreFloats(x->state1, left, p.state1 + at);
  if (p.narrowed != nullptr) {
    StoreNarrowed(x->parameter, left, p.narrowed_dtype, p.narrowed + at);
  }
  if (p.not_finite == nullptr) return true;
  if (p.narrowed == nullptr) return AllFinite(x->parameter, left);
  return AllBelow(
      x->parameter, left,
      p.narrowed_dtype == kBf16 ? kBf16OverflowBits : kF16OverflowBits);
}

// Sets *not_finite if a parameter is not finite. Called once per thread, since
// the word may be beyond the bus. All who write it write the same: no atomic is
// needed.
__device__ __forceinline__ void TellFinite(const UpdateLaunch& p, bool finite) {
  if (!finite) *p.not_finite = 1;
}

namespace {

constexpr int kWarpLanes = kUpdateLanes;
constexpr int kThreads = kUpdateThreads;
constexpr int kWarps = kUpdateWarps;
constexpr int kPerBlock = kThreads * kPerThread;

// Blocks that an SM is to hold: more would have to spill.
template <class Element>
inline constexpr int kBlocks = kHasScales<Element> ? 3 : 4;

// ----------------------------------------------------------------------------
// Device functions

// Sums of rows of a thread's quads, in registers: an index that is no constant
// would bring them to memory, so the first quad is taken each time.
template <class Element>
struct QuadSums {
  float of_quads[kQuads<Element>][kPerThread];

  __device__ __forceinline__ void TakeFirst(float (&x)[kPerThread]) {
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      x[e] = of_quads[0][e];
#pragma unroll
      for (int q = 1; q < kQuads<Element>; ++q) {
        of_quads[q - 1][e] = of_quads[q][e];
      }
    }
  }
};

// Parameters and state of the combiner's next quad.
template <class Element>
__device__ __forceinline__ void TakeState(int num_arrays,
                                          Combiner<Element>* combiner,
                                          Four* x) {
  if (num_arrays > 0) combiner->NextArray(x->parameter);
  if (num_arrays > 1) combiner->NextArray(x->state0);
  if (num_arrays > 2) combiner->NextArray(x->state1);
}

// Squares summed up: of parameters, and of what the trust ratio sets against
// them.
struct NormSums {
  double parameters = 0.0;
  double updates = 0.0;

  __device__ __forceinline__ void Add(const NormSums& other) {
    parameters += other.parameters;
    updates += other.updates;
  }
  // `left` elements, perhaps <= 0.
  __device__ __forceinline__ void AddFour(const Four& x, int left) {
#pragma unroll
    for (int e = 0; e < kPerThread; ++e) {
      if (e >= left) break;
      const double parameter = x.parameter[e];
      const double update = x.gradient[e];
      parameters = fma(parameter, parameter, parameters);
      updates = fma(update, update, updates);
    }
  }
};

// The block's sums, in thread 0; a tree of fixed shape.
__device__ __forceinline__ NormSums SumsOfBlock(NormSums sums,
                                                double (*shared)[2]) {
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    sums.Add({OfLaneBelow(sums.parameters, offset),
              OfLaneBelow(sums.updates, offset)});
  }
  if (threadIdx.x % kWarpLanes == 0) {
    shared[threadIdx.x / kWarpLanes][0] = sums.parameters;
    shared[threadIdx.x / kWarpLanes][1] = sums.updates;
  }
  __syncthreads();
  NormSums total;
  if (threadIdx.x == 0) {
    for (int w = 0; w < kWarps; ++w) total.Add({shared[w][0], shared[w][1]});
  }
  return total;
}

// ----------------------------------------------------------------------------
// Kernels

// Block per chunk.
template <class Element>
__global__ void __launch_bounds__(kThreads, kBlocks<Element>)
    UpdateKernel(const UpdateLaunch __grid_constant__ p) {
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  const StepConstants constants = ArrayOf(p.args, p.constants)[chunk.slot];
  const int num_arrays =
      p.formula.kind == OptimizerKind::kNone ? 0 : 1 + p.num_states;
  Combiner<Element> combiner(p, chunk, num_arrays,
                             &BlockShared<CombineShared<Element>>());
  bool finite = true;
  for (int base = 0; base < chunk.num_elements; base += kPerStep<Element>) {
    QuadSums<Element> sums;
    combiner.Sum(base, sums.of_quads);
#pragma unroll 1  // else each formula is there several times
    for (int q = 0; q < kQuads<Element>; ++q) {
      const int offset = combiner.Offset(base, q);
      const int left = chunk.num_elements - offset;
      Four x = {};
      sums.TakeFirst(x.gradient);
      TakeState(num_arrays, &combiner, &x);
      if (left <= 0) continue;
      finite &= StepAndStore(p, constants, chunk.begin + offset, left, &x);
    }
  }
  TellFinite(p, finite);
}

// Block per chunk.
template <class Element>
__global__ void __launch_bounds__(kThreads, kBlocks<Element>)
    CombineKernel(const UpdateLaunch __grid_constant__ p) {
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  Combiner<Element> combiner(p, chunk, 0,
                             &BlockShared<CombineShared<Element>>());
  for (int base = 0; base < chunk.num_elements; base += kPerStep<Element>) {
    QuadSums<Element> sums;
    combiner.Sum(base, sums.of_quads);
#pragma unroll
    for (int q = 0; q < kQuads<Element>; ++q) {
      const int offset = combiner.Offset(base, q);
      const int left = chunk.num_elements - offset;
      if (left <= 0) continue;
      StoreFloats(sums.of_quads[q], left, p.combined + chunk.begin + offset);
    }
  }
}

// Block per chunk. The combined gradient may come over the bus: 16 bytes per
// thread, all threads' at once.
__global__ void __launch_bounds__(kThreads)
    StepKernel(const UpdateLaunch __grid_constant__ p) {
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  const StepConstants constants = ArrayOf(p.args, p.constants)[chunk.slot];
  bool finite = true;
  for (int base = 0; base < chunk.num_elements; base += kPerBlock) {
    const int offset = base + static_cast<int>(threadIdx.x) * kPerThread;
    const int left = chunk.num_elements - offset;
    if (left <= 0) break;
    const int64_t at = chunk.begin + offset;
    Four x = {};
    LoadFloats(p.combined + at, left, x.gradient);
    if (p.formula.kind != OptimizerKind::kNone) LoadState(p, at, left, &x);
    finite &= StepAndStore(p, constants, at, left, &x);
  }
  TellFinite(p, finite);
}

// Block per chunk. Elements beyond the chunk's end add nothing.
template <class Element>
__global__ void __launch_bounds__(kThreads, kBlocks<Element>)
    NormsKernel(const UpdateLaunch __grid_constant__ p, double* partial) {
  auto& shared = BlockShared<double[kWarps][2]>();
  const Chunk chunk = ChunkAt(p, blockIdx.x);
  const StepConstants constants = ArrayOf(p.args, p.constants)[chunk.slot];
  const int num_arrays = 1 + p.num_states;
  Combiner<Element> combiner(p, chunk, num_arrays,
                             &BlockShared<CombineShared<Element>>());
  NormSums own;
  for (int base = 0; base < chunk.num_elements; base += kPerStep<Element>) {
    QuadSums<Element> sums;
    combiner.Sum(base, sums.of_quads);
#pragma unroll 1
    for (int q = 0; q < kQuads<Element>; ++q) {
      Four x = {};
      sums.TakeFirst(x.gradient);
      TakeState(num_arrays, &combiner, &x);
      VisitFormula(p.formula, DirectFour{constants, &x});
      own.AddFour(x, chunk.num_elements - combiner.Offset(base, q));
    }
  }
  const NormSums sums = SumsOfBlock(own, shared);
  if (threadIdx.x == 0) {
    partial[2 * static_cast<int64_t>(blockIdx.x)] = sums.parameters;
    partial[2 * static_cast<int64_t>(blockIdx.x) + 1] = sums.updates;
  }
}

// One thread per element: these two run when a job is seeded.
__global__ void __launch_bounds__(kThreads)
    FillKernel(float* to, int64_t num_elements, float value) {
  const int64_t k = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (k < num_elements) to[k] = value;
}

__global__ void __launch_bounds__(kThreads)
    NarrowKernel(const float* from, int64_t num_elements, int dtype,
                 uint16_t* to) {
  const int64_t k = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (k < num_elements) to[k] = Narrow(from[k], dtype);
}

// ----------------------------------------------------------------------------
// Launchers

unsigned BlocksFor(int64_t num_elements) {
  return static_cast<unsigned>((num_elements + kThreads - 1) / kThreads);
}

}  // namespace

cudaError_t LaunchUpdate(const UpdateLaunch& launch, cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(launch.num_chunks);
  return WithRowElement(launch.dtype, [&](auto element) {
    return LaunchKernel(&UpdateKernel<decltype(element)>, grid, kThreads,
                        stream, launch);
  });
}

cudaError_t LaunchCombine(const UpdateLaunch& launch, cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(launch.num_chunks);
  return WithRowElement(launch.dtype, [&](auto element) {
    return LaunchKernel(&CombineKernel<decltype(element)>, grid, kThreads,
                        stream, launch);
  });
}

cudaError_t LaunchStep(const UpdateLaunch& launch, cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  return LaunchKernel(&StepKernel, static_cast<unsigned>(launch.num_chunks),
                      kThreads, stream, launch);
}

cudaError_t LaunchNorms(const UpdateLaunch& launch, double* partial,
                        cudaStream_t stream) {
  if (launch.num_chunks == 0) return cudaSuccess;
  const auto grid = static_cast<unsigned>(launch.num_chunks);
  return WithRowElement(launch.dtype, [&](auto element) {
    return LaunchKernel(&NormsKernel<decltype(element)>, grid, kThreads, stream,
                        launch, partial);
  });
}

cudaError_t LaunchFill(float* to, int64_t num_elements, float value,
                       cudaStream_t stream) {
  if (num_elements == 0) return cudaSuccess;
  return LaunchKernel(&FillKernel, BlocksFor(num_elements), kThreads, stream,
                      to, num_elements, value);
}

cudaError_t LaunchNarrow(const float* from, int64_t num_elements, int dtype,
                         uint16_t* to, cudaStream_t stream) {
  if (num_elements == 0) return cudaSuccess;
  return LaunchKernel(&NarrowKernel, BlocksFor(num_elements), kThreads, stream,
                      from, num_elements, dtype, to);
}

cudaError_t LoadUpdate() {
  const auto load = [](auto element) {
    using Element = decltype(element);
    cudaError_t loaded = LoadRingKernel(&UpdateKernel<Element>);
    if (loaded == cudaSuccess) loaded = LoadRingKernel(&CombineKernel<Element>);
    if (loaded == cudaSuccess) loaded = LoadRingKernel(&NormsKernel<Element>);
    return loaded;
  };
  cudaError_t error = WithEachElement(load);
  if (error == cudaSuccess) error = load(I8());
  if (error == cudaSuccess) error = LoadKernel(&StepKernel);
  if (error == cudaSuccess) error = LoadKernel(&FillKernel);
  return error == cudaSuccess ? LoadKernel(&NarrowKernel) : error;
}

cudaError_t FindUpdateUse(int dtype, KernelUse* use) {
  return WithRowElement(dtype, [&](auto element) {
    return FindUse(&UpdateKernel<decltype(element)>, kThreads, use);
  });
}

}  // namespace agg::cuda
