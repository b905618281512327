// The header of a NumPy .npy file: what the readers and writers of .npy, of
// .npz and of checkpoints know of the format.
#ifndef AGG_SERVER_BASE_NPY_HEADER_H_
#define AGG_SERVER_BASE_NPY_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace agg {

// What a header says about the data that follows it.
struct NpyLayout {
  std::string type;  // "<f4": little-endian, float, 4 bytes
  bool fortran_order = false;
  std::vector<int64_t> shape;  // sizes of 0 or more; none of them: a scalar
};

// More than any header that is read here, with what comes before it.
inline constexpr size_t kMaxNpyHeaderBytes = (size_t{64} << 10) + 12;

// Reads the formats 1.0, 2.0 and 3.0. `bytes` is the file or its beginning: at
// least kMaxNpyHeaderBytes of it, unless it is shorter. Sets *data_offset to
// where the data begins. INVALID_ARGUMENT saying what is wrong, without a
// file's name.
absl::StatusOr<NpyLayout> ParseNpyHeader(absl::string_view bytes,
                                         size_t* data_offset);

// All that comes before the data of an array in C order: format 1.0, padded as
// NumPy pads it, so that the data begins at a multiple of 64 bytes.
std::string FormatNpyHeader(absl::string_view type,
                            absl::Span<const int64_t> shape);

}  // namespace agg

#endif  // AGG_SERVER_BASE_NPY_HEADER_H_
