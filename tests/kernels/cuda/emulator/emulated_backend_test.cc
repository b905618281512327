// Errors and memory of the CUDA backend, which no real device shows on demand.
#include <sys/mman.h>

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_buffer.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

using testing::HasSubstr;

class EmulatedBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    emulator::SetLazy(true);
    emulator::SetDeviceBytes(int64_t{1} << 40);
    CudaOptions options;
    options.use_cublas = false;
    auto backend = CudaBackend::Make(options);
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    rows_.push_back(*backend_->Allocate(BufferUse::kRow, 4000));
    rows_.push_back(*backend_->Allocate(BufferUse::kRow, 4000));
    master_ = *backend_->Allocate(BufferUse::kState, 4000);
    snapshot_ = *backend_->Allocate(BufferUse::kSnapshot, 4000);
    narrowed_ = *backend_->Allocate(BufferUse::kSnapshot, 2000);
    ASSERT_TRUE(backend_
                    ->Load(OptimizerOptions(), *snapshot_, master_.get(),
                           nullptr, nullptr, narrowed_.get(), DType::kBF16)
                    .ok());
  }

  void Land(float value) {
    for (const auto& row : rows_) {
      auto* const values = reinterpret_cast<float*>(row->host());
      std::fill(values, values + 1000, value);
      // As slices: small ones, not in order.
      backend_->RowLanded(*row, DType::kF32, {512, 488});
      backend_->RowLanded(*row, DType::kF32, {0, 500});
    }
  }

  // The sum of the rows' products over the ranges.
  absl::StatusOr<double> Gram(const std::vector<ElementRange>& ranges = {
                                  {0, 500}, {512, 488}}) {
    const std::vector<const Buffer*> rows = {rows_[0].get(), rows_[1].get()};
    std::vector<double> results(3 * ranges.size());
    GramRequest request;
    request.rows = rows;
    request.ranges = ranges;
    request.hi = absl::MakeSpan(results);
    const absl::Status status = backend_->Gram(request);
    if (!status.ok()) return status;
    double sum = 0.0;
    for (size_t r = 0; r < ranges.size(); ++r) sum += results[3 * r + 1];
    return sum;
  }

  absl::Status Update() {
    const std::vector<const Buffer*> rows = {rows_[0].get(), rows_[1].get()};
    const std::vector<double> coefficients = {0.5, 0.5};
    const std::vector<UpdateRange> updates = {
        {{0, 1000}, coefficients, 1.0f, 0.0f, 1.0f}};
    UpdateRequest request;
    request.rows = rows;
    request.ranges = updates;
    request.master = master_.get();
    request.snapshot = snapshot_.get();
    request.narrowed_snapshot = narrowed_.get();
    request.narrowed_dtype = DType::kBF16;
    return backend_->Update(request);
  }

  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Buffer>> rows_;
  std::unique_ptr<Buffer> master_, snapshot_, narrowed_;
};

TEST_F(EmulatedBackendTest, RoundsAllocateNothingAndSeeWhatLandedLast) {
  const int64_t num_allocations = emulator::NumAllocations();
  float expected = 0.0f;
  for (int round = 1; round <= 4; ++round) {
    const auto value = static_cast<float>(round);
    Land(value);
    ASSERT_EQ(*Gram(), 988.0 * value * value);
    ASSERT_TRUE(Update().ok());
    expected -= value;
    const auto* const snapshot =
        reinterpret_cast<const float*>(snapshot_->host());
    EXPECT_EQ(snapshot[0], expected);
    EXPECT_EQ(snapshot[999], expected);
  }
  EXPECT_EQ(emulator::NumAllocations(), num_allocations);
}

TEST_F(EmulatedBackendTest, ASliceThatLandsTwiceCountsAsLandedLast) {
  Land(5.0f);
  Land(2.0f);
  EXPECT_EQ(*Gram(), 988.0 * 4.0);
}

// Streams here work as late as they may: what has been copied was waited for.
TEST_F(EmulatedBackendTest, AGramWaitsForItsOwnSlicesAlone) {
  const auto on_device = [this](int row, int element) {
    return reinterpret_cast<const float*>(
        cuda::DeviceOf(rows_[row].get()))[element];
  };
  const auto land = [this](const ElementRange& range, float value) {
    for (const auto& row : rows_) {
      auto* const values = reinterpret_cast<float*>(row->host());
      std::fill_n(values + range.begin, range.num_elements, value);
      backend_->RowLanded(*row, DType::kF32, range);
    }
  };
  land({0, 500}, 3.0f);
  land({608, 64}, 5.0f);  // starts the copies of what came before
  EXPECT_EQ(*Gram({{0, 500}}), 500 * 9.0);
  EXPECT_EQ(on_device(0, 0), 3.0f);
  EXPECT_EQ(on_device(0, 608), 0.0f);
  // A second one of the same, though its copies are not noted any more.
  EXPECT_EQ(*Gram({{0, 500}}), 500 * 9.0);
  EXPECT_EQ(*Gram({{608, 64}}), 64 * 25.0);
  EXPECT_EQ(on_device(1, 608), 5.0f);
  // More copies than there are events.
  for (int i = 0; i < 10; ++i) {
    for (const int64_t begin : {0, 256, 512, 768}) {
      land({begin, 64}, static_cast<float>(i));
    }
  }
  EXPECT_EQ(*Gram({{256, 64}}), 64 * 81.0);
  land({0, 1000}, 2.0f);
  ASSERT_TRUE(Update().ok());  // waits for everything
  EXPECT_EQ(on_device(1, 999), 2.0f);
}

TEST_F(EmulatedBackendTest, ALaunchErrorIsInternalAndSaysWhere) {
  Land(1.0f);
  emulator::FailNextLaunch(cudaErrorLaunchFailure);
  const absl::StatusOr<double> gram = Gram();
  EXPECT_EQ(gram.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(
      std::string(gram.status().message()),
      testing::AllOf(HasSubstr("cudaErrorLaunchFailure"),
                     HasSubstr("LaunchGram"), HasSubstr("cuda_gram.cc:")));
  emulator::FailNextLaunch(cudaErrorLaunchFailure);
  EXPECT_EQ(Update().code(), absl::StatusCode::kInternal);
}

TEST_F(EmulatedBackendTest, ACopyThatFailsIsMadeAgain) {
  Land(5.0f);
  ASSERT_EQ(*Gram(), 988.0 * 25.0);
  Land(2.0f);
  emulator::FailNextCopy(cudaErrorInvalidValue);
  EXPECT_EQ(Gram().status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(*Gram(), 988.0 * 4.0);
}

TEST_F(EmulatedBackendTest, ALostDeviceIsAnErrorOfEveryCall) {
  Land(1.0f);
  emulator::BreakDevice(cudaErrorIllegalAddress);
  for (const absl::Status& status :
       {Gram().status(), Gram().status(), Update(),
        backend_->Allocate(BufferUse::kState, 64).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr("the CUDA device is lost"),
                               HasSubstr("cudaErrorIllegalAddress")));
  }
  emulator::BreakDevice(cudaSuccess);
}

TEST_F(EmulatedBackendTest, TellsWhatMemoryThereIsAndWhatItNeeds) {
  const DeviceMemoryUse before = backend_->device_memory_use();
  EXPECT_EQ(before.total_bytes, int64_t{1} << 40);
  // Two rows, weights, the narrowed copy and scratch.
  const MemoryNeeds needs = backend_->memory_needs(2);
  EXPECT_TRUE(needs.on_device);
  EXPECT_EQ(before.used_bytes, 3 * 4000 + 2000 + needs.device_scratch_bytes);
  EXPECT_GT(needs.scratch_bytes, 0);
  const auto state = backend_->Allocate(BufferUse::kState, 1 << 20);
  EXPECT_EQ(backend_->device_memory_use().used_bytes,
            before.used_bytes + (1 << 20));
}

TEST_F(EmulatedBackendTest, OutOfMemoryNamesTheSizes) {
  emulator::SetDeviceBytes(int64_t{200} << 20);
  const auto buffer = backend_->Allocate(BufferUse::kState, int64_t{1} << 30);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(buffer.status().message()),
              testing::AllOf(HasSubstr("1073741824"), HasSubstr("209715200")));
  EXPECT_TRUE(backend_->Allocate(BufferUse::kState, 1 << 20).ok());
}

// Host memory of somebody else, which other processes may map.
class AdoptedMemoryTest : public EmulatedBackendTest {
 protected:
  AdoptedMemoryTest() {
    for (char*& memory : memory_) {
      memory = static_cast<char*>(mmap(nullptr, kPage, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    }
  }
  ~AdoptedMemoryTest() override {
    rows_.clear();
    snapshot_ = nullptr;
    emulator::FailRegistering(cudaSuccess);
    for (char* const memory : memory_) munmap(memory, kPage);
  }

  std::unique_ptr<Buffer> Adopt(BufferUse use, char* memory,
                                absl::Status* registered) {
    auto buffer = backend_->Adopt(use, memory, 4000, registered);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : nullptr;
  }

  // Both rows, and the snapshot, in memory of somebody else.
  void AdoptAll() {
    rows_.clear();
    snapshot_ = nullptr;
    absl::Status registered[3];
    rows_.push_back(Adopt(BufferUse::kRow, memory_[0], &registered[0]));
    rows_.push_back(Adopt(BufferUse::kRow, memory_[1], &registered[1]));
    snapshot_ = Adopt(BufferUse::kSnapshot, memory_[2], &registered[2]);
    for (const absl::Status& status : registered) {
      EXPECT_EQ(status.message(), registered[0].message());
    }
    registered_ = registered[0];
    // Parameters begin at zero.
    const auto zeros = *backend_->Allocate(BufferUse::kSnapshot, 4000);
    ASSERT_TRUE(backend_
                    ->Load(OptimizerOptions(), *zeros, master_.get(), nullptr,
                           nullptr, narrowed_.get(), DType::kBF16)
                    .ok());
  }

  // Rounds whose rows and version are in adopted memory.
  void ExpectRounds() {
    float expected = 0.0f;
    for (int round = 1; round <= 3; ++round) {
      const auto value = static_cast<float>(round);
      Land(value);
      ASSERT_EQ(*Gram(), 988.0 * value * value);
      ASSERT_TRUE(Update().ok());
      expected -= value;
      const auto* const snapshot = reinterpret_cast<const float*>(memory_[2]);
      EXPECT_EQ(snapshot[0], expected);
      EXPECT_EQ(snapshot[999], expected);
    }
  }

  static constexpr size_t kPage = 4096;
  char* memory_[3];
  absl::Status registered_;  // what adopting said
};

TEST_F(AdoptedMemoryTest, IsCopiedFromAndToWhereItLies) {
  rows_.clear();
  snapshot_ = nullptr;
  const int64_t num_before = emulator::NumRegistered();
  AdoptAll();
  EXPECT_TRUE(registered_.ok()) << registered_;
  EXPECT_EQ(emulator::NumRegistered(), num_before + 3);
  EXPECT_EQ(rows_[0]->host(), memory_[0]);
  EXPECT_NE(rows_[0]->device(), nullptr);
  EXPECT_EQ(snapshot_->device(), nullptr);
  const int64_t staged_before = emulator::StagedBytes();
  ExpectRounds();
  EXPECT_EQ(emulator::StagedBytes(), staged_before);
  rows_.clear();
  snapshot_ = nullptr;
  EXPECT_EQ(emulator::NumRegistered(), num_before);
}

// As with a limit of locked memory: the same rounds, by way of staging memory.
TEST_F(AdoptedMemoryTest, ThatCannotBeRegisteredIsCopiedAllTheSame) {
  for (const cudaError_t error :
       {cudaErrorMemoryAllocation, cudaErrorOperatingSystem}) {
    rows_.clear();
    snapshot_ = nullptr;
    emulator::FailRegistering(error);
    const int64_t num_before = emulator::NumRegistered();
    AdoptAll();
    EXPECT_FALSE(registered_.ok());
    EXPECT_EQ(emulator::NumRegistered(), num_before);
    const int64_t staged_before = emulator::StagedBytes();
    ExpectRounds();
    // Both rows' slices and the version, of each round.
    EXPECT_EQ(emulator::StagedBytes() - staged_before,
              3 * (2 * 988 + 1000) * 4);
    emulator::FailRegistering(cudaSuccess);
  }
}

TEST_F(AdoptedMemoryTest, IsNoStateAndNeedsDeviceMemoryForARow) {
  absl::Status registered;
  EXPECT_EQ(backend_->Adopt(BufferUse::kState, memory_[0], 4000, &registered)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  const int64_t num_before = emulator::NumRegistered();
  emulator::SetDeviceBytes(emulator::AllocatedDeviceBytes());
  EXPECT_EQ(backend_->Adopt(BufferUse::kRow, memory_[0], 4000, &registered)
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(emulator::NumRegistered(), num_before);
}

TEST_F(AdoptedMemoryTest, OfALostDeviceIsAnError) {
  absl::Status registered;
  emulator::BreakDevice(cudaErrorIllegalAddress);
  for (const BufferUse use : {BufferUse::kRow, BufferUse::kSnapshot}) {
    EXPECT_EQ(
        backend_->Adopt(use, memory_[0], 4000, &registered).status().code(),
        absl::StatusCode::kUnavailable);
  }
  emulator::BreakDevice(cudaSuccess);
}

TEST_F(EmulatedBackendTest, StateHasNoHostMemory) {
  EXPECT_EQ(master_->host(), nullptr);
  EXPECT_NE(snapshot_->host(), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(rows_[0]->host()) % 64, 0u);
}

TEST_F(EmulatedBackendTest, NoRangesAreNoWork) {
  GramRequest request;
  const std::vector<const Buffer*> rows = {rows_[0].get()};
  request.rows = rows;
  EXPECT_TRUE(backend_->Gram(request).ok());
}

}  // namespace
}  // namespace agg
