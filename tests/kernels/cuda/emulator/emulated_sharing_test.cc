// The CUDA backend's memory that other processes map: what they write is what
// it computes on, and nothing is copied for it. The other process is a second
// mapping here.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "tests/kernels/cuda/emulator/device.h"
#include "tests/kernels/device_memory/fake_cuda.h"

namespace agg {
namespace {

using testing::HasSubstr;

constexpr int64_t kGranularity = int64_t{2} << 20;
constexpr int64_t kNumElements = 1024;
constexpr int64_t kNumBytes = kNumElements * 4;

std::unique_ptr<Backend> MakeBackend(const std::string& driver_path) {
  emulator::SetLazy(true);
  CudaOptions options;
  options.use_cublas = false;
  options.share_device = true;
  options.driver_path = driver_path;
  auto backend = CudaBackend::Make(options);
  EXPECT_TRUE(backend.ok()) << backend.status();
  return *std::move(backend);
}

float* FloatsOf(const Buffer& buffer) {
  return reinterpret_cast<float*>(buffer.device());
}

class EmulatedSharingTest : public testing::Test {
 protected:
  EmulatedSharingTest() : backend_(MakeBackend(kFakeCudaPath)) {
    for (int r = 0; r < 2; ++r) rows_.push_back(Allocate(BufferUse::kRow));
    master_ = Allocate(BufferUse::kState);
    snapshot_ = Allocate(BufferUse::kSnapshot);
    EXPECT_TRUE(backend_
                    ->Load(OptimizerOptions(), *snapshot_, master_.get(),
                           nullptr, nullptr, nullptr, DType::kF32)
                    .ok());
  }

  std::unique_ptr<Buffer> Allocate(BufferUse use) {
    auto buffer = backend_->Allocate(use, kNumBytes);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return *std::move(buffer);
  }

  // Maps the buffer's device side as another process does.
  std::unique_ptr<SharedDeviceMemory> Map(const Buffer& buffer) {
    const DeviceShare* const share = buffer.device_share();
    auto driver = CudaDriver::Load(kFakeCudaPath);
    EXPECT_TRUE(driver.ok()) << driver.status();
    const absl::StatusOr<int> device = (*driver)->DeviceWith(share->uuid);
    EXPECT_TRUE(device.ok()) << device.status();
    auto context = DeviceContext::Retain(*driver, *device);
    EXPECT_TRUE(context.ok()) << context.status();
    auto memory = SharedDeviceMemory::Map(*context, share->fd, kNumBytes,
                                          share->mapped_bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return *std::move(memory);
  }
  static void Fill(const SharedDeviceMemory& memory, float value) {
    std::fill_n(reinterpret_cast<float*>(memory.data()), kNumElements, value);
  }

  void Land(float value, const ElementRange& range) {
    for (const auto& row : rows_) {
      std::fill_n(reinterpret_cast<float*>(row->host()) + range.begin,
                  range.num_elements, value);
      backend_->RowLanded(*row, DType::kF32, range);
    }
  }

  // The product of the two rows.
  double Gram() {
    const std::vector<const Buffer*> rows = {rows_[0].get(), rows_[1].get()};
    const std::vector<ElementRange> ranges = {{0, kNumElements}};
    std::vector<double> results(3);
    GramRequest request;
    request.rows = rows;
    request.ranges = ranges;
    request.hi = absl::MakeSpan(results);
    EXPECT_EQ(backend_->Gram(request), absl::OkStatus());
    return results[1];
  }

  void Update() {
    const std::vector<const Buffer*> rows = {rows_[0].get(), rows_[1].get()};
    const std::vector<double> coefficients = {0.5, 0.5};
    const std::vector<UpdateRange> updates = {
        {{0, kNumElements}, coefficients, 1.0f, 0.0f, 1.0f}};
    UpdateRequest request;
    request.rows = rows;
    request.ranges = updates;
    request.master = master_.get();
    request.snapshot = snapshot_.get();
    EXPECT_EQ(backend_->Update(request), absl::OkStatus());
  }

  const std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Buffer>> rows_;
  std::unique_ptr<Buffer> master_, snapshot_;
};

TEST_F(EmulatedSharingTest, SharesRowsAndState) {
  for (const Buffer* buffer : {rows_[0].get(), master_.get()}) {
    ASSERT_NE(buffer->device_share(), nullptr);
    EXPECT_GE(buffer->device_share()->fd, 0);
    EXPECT_EQ(buffer->device_share()->mapped_bytes, kGranularity);
    EXPECT_EQ(FloatsOf(*buffer)[kNumElements - 1], 0.0f);
  }
  EXPECT_EQ(snapshot_->device_share(), nullptr);
  EXPECT_EQ(backend_->memory_needs(2).device_granularity, kGranularity);
  EXPECT_THAT(backend_->description(), Not(HasSubstr("no device rows")));
}

TEST_F(EmulatedSharingTest, SharesAdoptedRows) {
  void* const host = mmap(nullptr, kNumBytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  absl::Status registered;
  auto row = backend_->Adopt(BufferUse::kRow, static_cast<char*>(host),
                             kNumBytes, &registered);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_NE((*row)->device_share(), nullptr);
  *row = nullptr;
  munmap(host, kNumBytes);
}

TEST_F(EmulatedSharingTest, ComputesOnWhatAnotherProcessHasWritten) {
  const auto first = Map(*rows_[0]);
  const auto second = Map(*rows_[1]);
  const int64_t before = emulator::NumCalls().all;
  Gram();
  const int64_t num_calls = emulator::NumCalls().all - before;
  Fill(*first, 2.0f);
  Fill(*second, 3.0f);
  EXPECT_EQ(Gram(), 6.0 * kNumElements);
  EXPECT_EQ(emulator::NumCalls().all, before + 2 * num_calls)
      << "no copy of a row";
  Update();
  const auto* const published =
      reinterpret_cast<const float*>(snapshot_->host());
  EXPECT_EQ(published[0], -2.5f);
  EXPECT_EQ(published[kNumElements - 1], -2.5f);
}

TEST_F(EmulatedSharingTest, ShowsTheWeightsThatItPublishes) {
  const auto weights = Map(*master_);
  Land(4.0f, {0, kNumElements});
  Update();
  EXPECT_EQ(std::memcmp(weights->data(), snapshot_->host(), kNumBytes), 0);
  EXPECT_EQ(reinterpret_cast<const float*>(weights->data())[17], -4.0f);
}

// Streams work as late as they may here.
TEST_F(EmulatedSharingTest, AwaitsWhatHasLanded) {
  Land(5.0f, {0, 512});
  Land(6.0f, {768, 64});  // starts the copies of what came before
  EXPECT_EQ(FloatsOf(*rows_[1])[0], 0.0f);
  ASSERT_EQ(backend_->AwaitRows(), absl::OkStatus());
  for (const auto& row : rows_) {
    EXPECT_EQ(FloatsOf(*row)[511], 5.0f);
    EXPECT_EQ(FloatsOf(*row)[831], 6.0f) << "though it had been kept back";
  }
  const int64_t num_calls = emulator::NumCalls().all;
  ASSERT_EQ(backend_->AwaitRows(), absl::OkStatus());
  EXPECT_EQ(emulator::NumCalls().all, num_calls) << "there is nothing to do";
}

TEST_F(EmulatedSharingTest, AnotherProcessWritesAfterwards) {
  const auto first = Map(*rows_[0]);
  Land(5.0f, {0, kNumElements});
  ASSERT_EQ(backend_->AwaitRows(), absl::OkStatus());
  Fill(*first, 2.0f);
  EXPECT_EQ(Gram(), 10.0 * kNumElements) << "no copy comes late";
  // Rows that land later are waited for as ever.
  Land(3.0f, {0, kNumElements});
  EXPECT_EQ(Gram(), 9.0 * kNumElements);
}

TEST_F(EmulatedSharingTest, AwaitsCopiesThatAreMadeAgain) {
  emulator::FailNextCopy(cudaErrorInvalidValue);
  Land(5.0f, {0, 64});
  Land(5.0f, {512, 64});
  ASSERT_EQ(backend_->AwaitRows(), absl::OkStatus());
  for (const auto& row : rows_) EXPECT_EQ(FloatsOf(*row)[63], 5.0f);
}

TEST_F(EmulatedSharingTest, SaysThatTheDeviceIsLost) {
  Land(5.0f, {0, 64});
  emulator::BreakDevice(cudaErrorIllegalAddress);
  const absl::Status status = backend_->AwaitRows();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the CUDA device is lost"));
  emulator::BreakDevice(cudaSuccess);
}

TEST_F(EmulatedSharingTest, IsPrivateWhereThereIsNoSharedMemory) {
  fake_cuda::Fail("cuMemCreate", 2);
  const auto row = Allocate(BufferUse::kRow);
  fake_cuda::Fail("cuMemCreate", 0);
  EXPECT_EQ(row->device_share(), nullptr);
  ASSERT_NE(row->device(), nullptr);
  EXPECT_EQ(FloatsOf(*row)[kNumElements - 1], 0.0f);
}

TEST_F(EmulatedSharingTest, GivesEverythingBack) {
  const int64_t live = fake_cuda::NumLive();
  Allocate(BufferUse::kRow);
  Allocate(BufferUse::kState);
  EXPECT_EQ(fake_cuda::NumLive(), live);
}

// The driver's unmapping promises less than cudaFree does. The work that a
// stream has been given stands for a kernel: it runs as late as it may.
TEST_F(EmulatedSharingTest, ABufferThatGoesWaitsForTheKernelsOnIt) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  for (const bool shared : {true, false}) {
    for (const BufferUse use : {BufferUse::kRow, BufferUse::kState}) {
      fake_cuda::Fail("cuMemCreate", shared ? 0 : 2);
      std::unique_ptr<Buffer> buffer = Allocate(use);
      fake_cuda::Fail("cuMemCreate", 0);
      ASSERT_EQ(buffer->device_share() != nullptr, shared);
      float* const memory = FloatsOf(*buffer);
      bool has_run = false;
      emulator::Enqueue(stream, [&has_run, memory] {
        memory[kNumElements - 1] = 1.0f;  // faults behind the buffer's end
        has_run = true;
      });
      ASSERT_FALSE(has_run);
      buffer = nullptr;
      EXPECT_TRUE(has_run);
    }
  }
  cudaStreamDestroy(stream);
}

TEST(EmulatedSharingDeathTest, NothingLiesBehindSharedMemory) {
  const std::unique_ptr<Backend> backend = MakeBackend(kFakeCudaPath);
  const auto state = backend->Allocate(BufferUse::kState, kGranularity);
  ASSERT_TRUE(state.ok()) << state.status();
  FloatsOf(**state)[kGranularity / 4 - 1] = 1.0f;
  EXPECT_DEATH(FloatsOf(**state)[kGranularity / 4] = 1.0f, "");
}

TEST(EmulatedSharingFallbackTest, SaysWhyNothingIsShared) {
  const auto check = [](const std::string& path, const std::string& reason) {
    const std::unique_ptr<Backend> backend = MakeBackend(path);
    EXPECT_THAT(backend->description(), HasSubstr("; no device rows: "));
    EXPECT_THAT(backend->description(), HasSubstr(reason));
    EXPECT_EQ(backend->memory_needs(2).device_granularity, 1);
    const auto row = backend->Allocate(BufferUse::kRow, kNumBytes);
    ASSERT_TRUE(row.ok()) << row.status();
    EXPECT_EQ((*row)->device_share(), nullptr);
    EXPECT_NE((*row)->device(), nullptr);
  };
  check("/nowhere/libcuda.so.1", "no CUDA driver: /nowhere/libcuda.so.1");
  fake_cuda::SetShares(false);
  check(kFakeCudaPath, "does not support virtual memory management");
  fake_cuda::SetShares(true);
}

TEST(EmulatedSharingFallbackTest, SharesNothingUnasked) {
  CudaOptions options;
  options.use_cublas = false;
  const auto backend = CudaBackend::Make(options);
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto row = (*backend)->Allocate(BufferUse::kRow, kNumBytes);
  ASSERT_TRUE(row.ok()) << row.status();
  EXPECT_EQ((*row)->device_share(), nullptr);
  EXPECT_THAT((*backend)->description(), Not(HasSubstr("device rows")));
}

}  // namespace
}  // namespace agg
