// .npy files for tests, good and bad.
#ifndef AGG_TESTS_WORKER_CLIENT_NPZ_NPY_FILES_H_
#define AGG_TESTS_WORKER_CLIENT_NPZ_NPY_FILES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace agg {

using Rows = std::vector<std::vector<double>>;

// The elements' bytes. `type` is "<f2", "<f4" or "<f8". Values must be exact in
// <f2; they are rounded to <f4.
std::string NpyData(const Rows& rows, absl::string_view type);

// Magic, version, header length, `header` padded as NumPy does.
std::string NpyPrefix(int major_version, const std::string& header);

// "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
std::string NpyHeader(absl::string_view type, absl::string_view shape);

// A complete file.
std::string Npy(const Rows& rows, absl::string_view type,
                int major_version = 1);

// Writes bytes into the test's temporary folder; returns the path.
std::string WriteTestFile(const std::string& name, const std::string& bytes);
std::string ReadTestFile(const std::string& path);

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_NPZ_NPY_FILES_H_
