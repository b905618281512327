// Parameters as .npz files, which numpy.load and numpy.savez share.
#ifndef AGG_WORKER_CLIENT_NPZ_NPZ_H_
#define AGG_WORKER_CLIENT_NPZ_NPZ_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker_client/tensor_view.h"

namespace agg {

// A named float32 array, row-major.
struct NpzTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;

  TensorView view() const { return TensorView(name, values); }
  MutableTensorView mutable_view() {
    return MutableTensorView(name, absl::MakeSpan(values));
  }
};

// Writes float32 arrays, uncompressed; equal tensors make equal bytes. UNKNOWN
// naming the path if that fails; the path is then as it was.
absl::Status WriteNpz(const std::string& path,
                      const std::vector<NpzTensor>& tensors);

// Reads an .npz file of float32 arrays in C order, compressed or not, in the
// file's order. NOT_FOUND: cannot be opened; INVALID_ARGUMENT naming path and
// entry: anything else.
absl::StatusOr<std::vector<NpzTensor>> ReadNpz(const std::string& path);

// The views of all tensors, for Seed.
std::vector<TensorView> Views(const std::vector<NpzTensor>& tensors);
std::vector<MutableTensorView> MutableViews(std::vector<NpzTensor>* tensors);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_NPZ_NPZ_H_
