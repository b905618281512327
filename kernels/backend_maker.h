// BackendMaker creates a backend by name. Code that takes a maker links no
// backend.
#ifndef AGG_KERNELS_BACKEND_MAKER_H_
#define AGG_KERNELS_BACKEND_MAKER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"

namespace agg {

// How a plain Gram accumulates; gram_kernel.h says what each is worth.
enum class GramArithmetic : uint8_t {
  kByDevice,     // pairs of floats where fp64 runs at 1/32 of fp32 or less
  kDouble,       // fp64 units or tensor cores, cuBLAS for many rows
  kDoubleFloat,  // pairs of floats, whatever the number of rows
};

struct BackendOptions {
  // Compute threads of the CPU backend; 0 takes one per available CPU.
  int num_threads = 0;
  // How the CUDA backend accumulates a plain Gram.
  GramArithmetic cuda_gram = GramArithmetic::kByDevice;
  // Index of the CUDA device, from 0, among the visible ones
  // (CUDA_VISIBLE_DEVICES).
  int cuda_device = 0;
  // The CUDA backend makes kRow and kState buffers such that other processes
  // can map their device side (Buffer::device_share), where the driver can do
  // that; its description says if it cannot.
  bool share_device = false;
};

// Makes a backend by its name ("cpu", "cuda"). INVALID_ARGUMENT for a name that
// it does not know and a number that no device has; UNAVAILABLE when there is
// no device at all.
using BackendMaker = std::function<absl::StatusOr<std::unique_ptr<Backend>>(
    absl::string_view name, const BackendOptions& options)>;

}  // namespace agg

#endif  // AGG_KERNELS_BACKEND_MAKER_H_
