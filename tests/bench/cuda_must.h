// A benchmark of the GPU ends with a message where a call fails.
#ifndef AGG_TESTS_BENCH_CUDA_MUST_H_
#define AGG_TESTS_BENCH_CUDA_MUST_H_

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace agg {

inline void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

inline void Must(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

template <class T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

}  // namespace agg

#endif  // AGG_TESTS_BENCH_CUDA_MUST_H_
