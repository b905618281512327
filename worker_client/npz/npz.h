// Parameters as .npz files, which numpy.load and numpy.savez share.
#ifndef AGG_WORKER_CLIENT_NPZ_NPZ_H_
#define AGG_WORKER_CLIENT_NPZ_NPZ_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace agg {

// A named float32 array, row-major. It has as many values as its shape says.
struct NpzTensor {
  std::string name;  // UTF-8; its member of the archive is "NAME.npy"
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// Writes float32 arrays, uncompressed; equal tensors make equal bytes. `path`
// has the old file or the new one, complete, even after a crash; a symbolic
// link is followed, and one that leads nowhere is refused. UNKNOWN naming the
// path and the reason if it cannot be written, is a folder or a device, or if
// there are no tensors or two of one name; it is then as it was.
absl::Status WriteNpz(const std::string& path,
                      const std::vector<NpzTensor>& tensors);

// Reads float32 arrays in C order, stored or deflated (numpy.savez and
// numpy.savez_compressed), in the file's order. No file makes it allocate more
// than deflate could have packed into it, about 1000 times its size. NOT_FOUND:
// cannot be opened; INVALID_ARGUMENT naming path, member, and what is allowed:
// anything else.
absl::StatusOr<std::vector<NpzTensor>> ReadNpz(const std::string& path);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_NPZ_NPZ_H_
