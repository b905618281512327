// A libcublas.so with what CublasLibrary calls, in plain loops: the prototypes
// are NVIDIA's, so that arguments in the wrong place show. It computes at
// once, which is right for eager streams only.
#include <cublas_v2.h>

#include <cstdlib>

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  static int storage = 0;
  *handle = reinterpret_cast<cublasHandle_t>(&storage);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t stream) {
  return stream == nullptr ? CUBLAS_STATUS_INVALID_VALUE
                           : CUBLAS_STATUS_SUCCESS;
}

// C[b] = alpha A[b]^T B[b] + beta C[b], columns behind each other.
cublasStatus_t cublasDgemmStridedBatched(
    cublasHandle_t, cublasOperation_t transa, cublasOperation_t transb, int m,
    int n, int k, const double* alpha, const double* a, int lda,
    long long stride_a, const double* b, int ldb, long long stride_b,
    const double* beta, double* c, int ldc, long long stride_c,
    int num_batches) {
  // As an old library on a new card.
  if (std::getenv("AGG_FAKE_CUBLAS_FAILS") != nullptr) {
    return CUBLAS_STATUS_ARCH_MISMATCH;
  }
  if (transa != CUBLAS_OP_T || transb != CUBLAS_OP_N || lda < k || ldb < k ||
      ldc < m) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (long long batch = 0; batch < num_batches; ++batch) {
    for (long long j = 0; j < n; ++j) {
      for (long long i = 0; i < m; ++i) {
        double sum = 0.0;
        for (long long l = 0; l < k; ++l) {
          sum += a[batch * stride_a + i * lda + l] *
                 b[batch * stride_b + j * ldb + l];
        }
        double& to = c[batch * stride_c + j * ldc + i];
        to = *alpha * sum + (*beta == 0.0 ? 0.0 : *beta * to);
      }
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
