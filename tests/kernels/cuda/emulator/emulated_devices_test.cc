// A backend on another device than the first one. CUDA's current device is each
// thread's own, and a server's calls come from many threads.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

using testing::HasSubstr;

// On a thread that has made no call of CUDA before.
template <class Call>
void OnNewThread(const Call& call) {
  std::thread(call).join();
}

class EmulatedDevicesTest : public testing::Test {
 protected:
  EmulatedDevicesTest() {
    emulator::SetLazy(true);
    emulator::SetDeviceCount(2);
  }
  ~EmulatedDevicesTest() override { emulator::SetDeviceCount(1); }

  static absl::StatusOr<std::unique_ptr<Backend>> Make(int device) {
    CudaOptions options;
    options.device = device;
    options.use_cublas = false;
    return CudaBackend::Make(options);
  }
};

// Two rows and parameters, every call on a thread of its own.
class Job {
 public:
  explicit Job(int device) {
    CudaOptions options;
    options.device = device;
    options.use_cublas = false;
    OnNewThread([&] { backend_ = *CudaBackend::Make(options); });
    for (std::unique_ptr<Buffer>& row : rows_) {
      OnNewThread([&] { row = Allocate(BufferUse::kRow); });
    }
    OnNewThread([&] { master_ = Allocate(BufferUse::kState); });
    OnNewThread([&] { snapshot_ = Allocate(BufferUse::kSnapshot); });
    OnNewThread([&] {
      EXPECT_TRUE(backend_
                      ->Load(OptimizerOptions(), *snapshot_, master_.get(),
                             nullptr, nullptr, nullptr, DType::kF32)
                      .ok());
    });
  }
  ~Job() {
    for (std::unique_ptr<Buffer>& row : rows_) OnNewThread([&] { row = {}; });
    OnNewThread([&] { master_ = nullptr; });
    OnNewThread([&] { snapshot_ = nullptr; });
    OnNewThread([&] { backend_ = nullptr; });
  }

  // Rows of `value` in, the mean of them out.
  void RunRound(float value) {
    for (const std::unique_ptr<Buffer>& row : rows_) {
      OnNewThread([&] {
        auto* const values = reinterpret_cast<float*>(row->host());
        std::fill_n(values, kNumElements, value);
        backend_->RowLanded(*row, DType::kF32, {0, kNumElements});
      });
    }
    const std::vector<const Buffer*> rows = {rows_[0].get(), rows_[1].get()};
    const ElementRange range = {0, kNumElements};
    OnNewThread([&] {
      std::vector<double> results(3);
      GramRequest request;
      request.rows = rows;
      request.ranges = absl::MakeConstSpan(&range, 1);
      request.hi = absl::MakeSpan(results);
      const absl::Status status = backend_->Gram(request);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(results[1], kNumElements * value * value);
    });
    OnNewThread([&] {
      const std::vector<double> coefficients = {0.5, 0.5};
      const std::vector<UpdateRange> updates = {
          {range, coefficients, 1.0f, 0.0f, 1.0f}};
      UpdateRequest request;
      request.rows = rows;
      request.ranges = updates;
      request.master = master_.get();
      request.snapshot = snapshot_.get();
      const absl::Status status = backend_->Update(request);
      EXPECT_TRUE(status.ok()) << status;
    });
    expected_ -= value;
    OnNewThread([&] {
      std::vector<float> values(kNumElements);
      EXPECT_TRUE(backend_->Read(*master_, absl::MakeSpan(values)).ok());
      EXPECT_THAT(values, testing::Each(expected_));
    });
  }

  int64_t UsedBytes() {
    int64_t used_bytes = 0;
    OnNewThread([&] { used_bytes = backend_->device_memory_use().used_bytes; });
    return used_bytes;
  }

  std::string description() const { return backend_->description(); }

 private:
  static constexpr int64_t kNumElements = 512;

  std::unique_ptr<Buffer> Allocate(BufferUse use) {
    return *backend_->Allocate(use, kNumElements * 4);
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Buffer> rows_[2], master_, snapshot_;
  float expected_ = 0.0f;
};

TEST_F(EmulatedDevicesTest, EveryThreadUsesTheChosenOneAlone) {
  const int64_t num_bytes = emulator::AllocatedDeviceBytes();
  const int64_t num_registered = emulator::NumRegistered();
  {
    Job job(1);
    job.RunRound(2.0f);
    job.RunRound(3.0f);
    EXPECT_THAT(job.description(), HasSubstr("cuda, device 1, emulated"));
    EXPECT_EQ(job.UsedBytes(), emulator::AllocatedDeviceBytes() - num_bytes);
  }
  EXPECT_EQ(emulator::AllocatedDeviceBytes(), num_bytes);
  EXPECT_EQ(emulator::NumRegistered(), num_registered);
  EXPECT_TRUE(emulator::DeviceUsed(1));
  EXPECT_FALSE(emulator::DeviceUsed(0));
  EXPECT_EQ(emulator::DeviceFlags(1),
            static_cast<unsigned>(cudaDeviceScheduleBlockingSync));
}

TEST_F(EmulatedDevicesTest, TwoBackendsTakeTurns) {
  Job first(0), second(1);
  for (const float value : {1.0f, 2.0f}) {
    first.RunRound(value);
    second.RunRound(value);
  }
}

TEST_F(EmulatedDevicesTest, ThereAreOnlySoMany) {
  for (const int device : {2, -1}) {
    const absl::Status status = Make(device).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr("device is " + std::to_string(device)),
                               HasSubstr("allowed: 0 to 1"),
                               HasSubstr("CUDA_VISIBLE_DEVICES")));
  }
  EXPECT_FALSE(emulator::DeviceUsed(0));
  EXPECT_FALSE(emulator::DeviceUsed(1));
}

}  // namespace
}  // namespace agg
