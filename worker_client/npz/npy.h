// NumPy .npy files: a matrix of gradients is read, a vector written.
#ifndef AGG_WORKER_CLIENT_NPZ_NPY_H_
#define AGG_WORKER_CLIENT_NPZ_NPY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace agg {

// P x d in row-major order, every value exact.
struct NpyMatrix {
  int num_rows = 0;
  int64_t num_elements = 0;  // d, of a row
  bool is_float64 = false;   // else float16 or float32
  std::vector<double> values;

  absl::Span<const double> row(int i) const {
    return absl::MakeConstSpan(values).subspan(i * num_elements, num_elements);
  }
};

// More rows than a job has workers: probably a d x P file.
inline constexpr int64_t kMaxNpyRows = 4096;

// Reads the .npy formats 1.0, 2.0 and 3.0 holding little-endian float16,
// float32 or float64 ('<f2', '<f4', '<f8') in C order with shape (P, d), 1 <= P
// <= kMaxNpyRows. d may be 0. The file's size must be exactly what its header
// says. Errors, each naming the file and what is wrong: NOT_FOUND if it cannot
// be read, INVALID_ARGUMENT for anything else that is not as above.
absl::StatusOr<NpyMatrix> ReadNpyMatrix(const std::string& path);

// Writes a float64 array of shape (values.size(),), format 1.0. Replaces an
// existing file. UNAVAILABLE, naming the file, if it cannot be written.
absl::Status WriteNpyVector(const std::string& path,
                            absl::Span<const double> values);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_NPZ_NPY_H_
