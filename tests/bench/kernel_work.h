// The launches of a Gram or an Update, made ready once: what the CUDA backend
// gives its stream, without its waits and its copies to the host. And the
// waves: what the server asks the backend for, and what that then launches at
// once, by the same numbers, from where they are kept.
#ifndef AGG_TESTS_BENCH_KERNEL_WORK_H_
#define AGG_TESTS_BENCH_KERNEL_WORK_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/args_block.h"
#include "kernels/cuda/chunk_plan.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/update_kernel.h"

namespace agg {

// A large tensor's slices, as large as they get.
std::vector<ElementRange> SlicesOf(int64_t num_elements);

// The waves of a tensor whose slices are complete at about the same time: a
// call of Gram for each batch of EarlyGrams, and each call in waves that fit
// the backend's memory for partial sums.
std::vector<cuda::Wave> GramWaves(int num_rows, int64_t num_elements);

// One call of Update.
std::vector<cuda::Wave> UpdateWaves(int num_rows, int64_t num_elements);

// All slices at once: what no backend launches.
cuda::Wave OneWave(int64_t num_elements);

// Rows on the device.
struct DeviceRows {
  std::vector<const void*> rows;
  DType dtype = DType::kF32;
  int64_t num_elements = 0;  // of each
};

// All of both classes end the process with a message if a call fails. `args`
// is begun anew; it outlives the work, of which one is launched at a time.

// Launches for each wave the kernel and then the sums of its slots, to pinned
// memory.
class GramWork {
 public:
  GramWork(const DeviceRows& rows, const std::vector<cuda::Wave>& waves,
           cuda::ArgsBlock* args);
  void Launch(bool double_float, cudaStream_t stream) const;
  // Launches of Grams and of sums; a Gram of more than 32 rows is two kernels.
  int64_t num_launches() const {
    return static_cast<int64_t>(grams_.size() + sums_.size());
  }
  // [slot][packed pair], of the wave that was launched last.
  const double* host_sums() const {
    return reinterpret_cast<const double*>(host_sums_.get());
  }

 private:
  std::vector<cuda::GramLaunch> grams_;
  std::vector<cuda::SumLaunch> sums_;
  cuda::DeviceMemory partial_;
  cuda::PinnedMemory host_sums_;
};

class UpdateWork {
 public:
  // `fill` puts numbers into the parameters: device memory of float32; the
  // optimizer's state is zeros.
  UpdateWork(const DeviceRows& rows, const OptimizerOptions& optimizer,
             const std::vector<cuda::Wave>& waves,
             const std::function<void(char* memory, int64_t num_bytes)>& fill,
             cuda::ArgsBlock* args);
  void Launch(cudaStream_t stream) const;
  int64_t num_launches() const { return static_cast<int64_t>(updates_.size()); }
  // The parameters, then the state.
  const std::vector<cuda::DeviceMemory>& arrays() const { return arrays_; }

 private:
  std::vector<cuda::UpdateLaunch> updates_;
  std::vector<cuda::DeviceMemory> arrays_;
  cuda::PinnedMemory not_finite_;
};

}  // namespace agg

#endif  // AGG_TESTS_BENCH_KERNEL_WORK_H_
