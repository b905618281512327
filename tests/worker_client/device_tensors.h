// Tensors in the memory of a device of the fake driver's.
#ifndef AGG_TESTS_WORKER_CLIENT_DEVICE_TENSORS_H_
#define AGG_TESTS_WORKER_CLIENT_DEVICE_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "worker_client/tensor_view.h"

namespace agg {

// Copies of the host's values, which kernels of the default stream make: they
// are there when somebody has waited for that.
class DeviceTensors {
 public:
  explicit DeviceTensors(const std::vector<std::vector<float>>& values,
                         int device = 0)
      : device_(device),
        context_(
            *DeviceContext::Retain(*CudaDriver::Load(kFakeCudaPath), device)) {
    for (const std::vector<float>& tensor : values) {
      sizes_.push_back(tensor.size());
      memory_.push_back(fake_cuda::Alloc(
          static_cast<int64_t>(tensor.size() * 4) + 4, device));
    }
    Set(values);
  }
  ~DeviceTensors() {
    Synchronize();
    for (char* memory : memory_) fake_cuda::Free(memory);
  }
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  void Set(const std::vector<std::vector<float>>& values) {
    for (size_t t = 0; t < values.size(); ++t) {
      fake_cuda::Launch(device_, [to = memory_[t], from = values[t]] {
        if (from.empty()) return;
        std::memcpy(to, from.data(), from.size() * sizeof(float));
      });
    }
  }
  // Waits for the default stream.
  void Synchronize() const {
    const CurrentContext current(*context_);
    context_->driver().call().cuStreamSynchronize(nullptr);
  }
  // The tensors as they are now: without waiting for anything.
  std::vector<std::vector<float>> Get() const {
    std::vector<std::vector<float>> values;
    for (size_t t = 0; t < memory_.size(); ++t) {
      values.emplace_back(at(t), at(t) + sizes_[t]);
    }
    return values;
  }

  float* at(size_t tensor) const {
    return reinterpret_cast<float*>(memory_[tensor]);
  }
  std::vector<TensorView> Read() const {
    std::vector<TensorView> views;
    for (size_t t = 0; t < memory_.size(); ++t) {
      views.emplace_back(absl::MakeConstSpan(at(t), sizes_[t]));
    }
    return views;
  }
  std::vector<MutableTensorView> Write() const {
    std::vector<MutableTensorView> views;
    for (size_t t = 0; t < memory_.size(); ++t) {
      views.emplace_back(absl::MakeSpan(at(t), sizes_[t]));
    }
    return views;
  }

 private:
  const int device_;
  const std::shared_ptr<const DeviceContext> context_;
  std::vector<size_t> sizes_;
  std::vector<char*> memory_;
};

}  // namespace agg

#endif  // AGG_TESTS_WORKER_CLIENT_DEVICE_TENSORS_H_
