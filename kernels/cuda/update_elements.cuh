// Four elements of a thread: loaded, stepped, stored. Device code, apart from
// the kernels because several take the same steps.
#ifndef AGG_KERNELS_CUDA_UPDATE_ELEMENTS_CUH_
#define AGG_KERNELS_CUDA_UPDATE_ELEMENTS_CUH_

#include <stdint.h>

#include "kernels/cuda/device_ops.cuh"
#include "kernels/cuda/load_elements.cuh"
#include "kernels/cuda/piece_ring.cuh"
#include "kernels/cuda/update_kernel.h"
#include "kernels/narrow_float.h"
#include "kernels/step_constants.h"
#include "kernels/step_formula.h"

namespace agg::cuda {

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

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_UPDATE_ELEMENTS_CUH_
