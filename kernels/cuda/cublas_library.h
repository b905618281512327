// cuBLAS, opened at run time: the binary carries no reference to it, since the
// library and what it needs are ten times the size of everything else.
#ifndef AGG_KERNELS_CUDA_CUBLAS_LIBRARY_H_
#define AGG_KERNELS_CUDA_CUBLAS_LIBRARY_H_

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace agg::cuda {

// What to hand to dlopen, in order; entries with a '*' are patterns for glob.
// The loader's path first (LD_LIBRARY_PATH, ld.so.cache), then CUDA_HOME and
// /usr/local/cuda, then the nvidia-cublas package of Python installations
// (VIRTUAL_ENV, PYTHONPATH, the system's). `env` is getenv. Pure.
std::vector<std::string> CublasCandidates(
    const std::function<const char*(const char*)>& env);

// C[b] = A[b]^T A[b] for b in 0..num_batches-1. A[b]: `num_rows` rows of
// `num_elements` doubles, `row_stride` apart, at a + b * num_elements; C[b]:
// num_rows^2 doubles at c + b * num_rows^2, symmetric up to rounding.
struct BatchedGram {
  const double* a = nullptr;
  int num_rows = 0;
  int num_elements = 0;
  int row_stride = 0;
  int num_batches = 0;
  double* c = nullptr;
};

// Thread-compatible.
class CublasLibrary {
 public:
  // NOT_FOUND saying what was tried. Opens the library, no more; `path` is
  // tried alone if it is not empty.
  static absl::StatusOr<std::unique_ptr<CublasLibrary>> Open(
      const std::string& path);
  ~CublasLibrary();

  const std::string& path() const { return path_; }

  // Creates cuBLAS's handle, which takes device memory, for one stream.
  absl::Status Start(cudaStream_t stream);
  bool started() const { return handle_ != nullptr; }

  // Multiplies on Start's stream. Deterministic: one stream, no atomics
  // (cuBLAS's default), and what is chosen depends on the shape alone.
  absl::Status Gram(const BatchedGram& gram);

 private:
  CublasLibrary(void* library, std::string path)
      : library_(library), path_(std::move(path)) {}

  void* const library_;
  const std::string path_;
  void* handle_ = nullptr;  // cublasHandle_t
};

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_CUBLAS_LIBRARY_H_
