// The two ends of the cuBLAS Gram: rows to a tile of doubles, and matrices of
// the tile's batches to packed sums.
//
// Work on `stream`, allocate nothing, do not wait, return launch errors.
// Deterministic on every device: conversion is exact, batches are added in
// order. No atomics.
#ifndef AGG_KERNELS_CUDA_GRAM_TILE_H_
#define AGG_KERNELS_CUDA_GRAM_TILE_H_

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "kernels/cuda/kernel_args.h"

namespace agg::cuda {

struct ConvertLaunch {
  InlineArgs args;
  ArgArray<const void*> rows;  // num_rows
  int num_rows = 0;
  int dtype = 0;         // agg::DType's value
  int64_t begin = 0;     // in the layout
  int num_elements = 0;  // >= 1
  int num_filled = 0;    // zeros from num_elements on
  double* tile = nullptr;
  int64_t row_stride = 0;
};
cudaError_t LaunchConvert(const ConvertLaunch& launch, cudaStream_t stream);

struct GatherLaunch {
  const double* matrices = nullptr;  // [batch][num_rows^2]
  int num_batches = 0;
  int num_rows = 0;
  double* sums = nullptr;  // packed; what is there is added to
};
cudaError_t LaunchGather(const GatherLaunch& launch, cudaStream_t stream);

// Brings both kernels to the device, as their first launches would.
cudaError_t LoadTiles();

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_GRAM_TILE_H_
