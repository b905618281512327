// Writes a vector as a NumPy .npy file.
#ifndef AGG_WORKER_CLIENT_NPZ_NPY_WRITER_H_
#define AGG_WORKER_CLIENT_NPZ_NPY_WRITER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace agg {

// A float64 array of shape (values.size(),), format 1.0. Replaces an existing
// file. UNAVAILABLE, naming the file, if it cannot be written.
absl::Status WriteNpyVector(const std::string& path,
                            absl::Span<const double> values);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_NPZ_NPY_WRITER_H_
