// What a row that comes or goes does to the round that is under way: nothing.
// Streams here work as late as they may, so that what a call waits for shows.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/cuda/row_copies.h"
#include "tests/kernels/cuda/emulator/device.h"

namespace agg {
namespace {

using testing::HasSubstr;

class EmulatedJoiningTest : public testing::Test {
 protected:
  EmulatedJoiningTest() {
    emulator::SetLazy(true);
    emulator::SetDeviceBytes(int64_t{1} << 40);
    CudaOptions options;
    options.use_cublas = false;
    backend_ = *CudaBackend::Make(options);
  }
  ~EmulatedJoiningTest() override {
    emulator::FailRegistering(cudaSuccess);
    emulator::SetRegisteredServesKernels(true);
  }

  void AllocateAll(int64_t num_elements) {
    for (int i = 0; i < 2; ++i) {
      rows_.push_back(*backend_->Allocate(BufferUse::kRow, num_elements * 4));
    }
    master_ = *backend_->Allocate(BufferUse::kState, num_elements * 4);
    snapshot_ = *backend_->Allocate(BufferUse::kSnapshot, num_elements * 4);
    ASSERT_TRUE(backend_
                    ->Load(OptimizerOptions(), *snapshot_, master_.get(),
                           nullptr, nullptr, nullptr, DType::kF32)
                    .ok());
  }

  void Land(const ElementRange& range, float value) {
    for (const auto& row : rows_) {
      auto* const values = reinterpret_cast<float*>(row->host());
      std::fill_n(values + range.begin, range.num_elements, value);
      backend_->RowLanded(*row, DType::kF32, range);
    }
  }

  // The rows' product over the range.
  double Gram(const ElementRange& range) {
    const std::vector<const Buffer*> rows = {rows_[0].get(), rows_[1].get()};
    std::vector<double> results(3);
    GramRequest request;
    request.rows = rows;
    request.ranges = absl::MakeConstSpan(&range, 1);
    request.hi = absl::MakeSpan(results);
    EXPECT_TRUE(backend_->Gram(request).ok());
    return results[1];
  }

  absl::Status Update(const ElementRange& range) {
    const std::vector<const Buffer*> rows = {rows_[0].get(), rows_[1].get()};
    const std::vector<double> coefficients = {0.5, 0.5};
    const std::vector<UpdateRange> updates = {
        {range, coefficients, 1.0f, 0.0f, 1.0f}};
    UpdateRequest request;
    request.rows = rows;
    request.ranges = updates;
    request.master = master_.get();
    request.snapshot = snapshot_.get();
    return backend_->Update(request);
  }

  float OnDevice(int row, int64_t element) {
    return reinterpret_cast<const float*>(rows_[row]->device())[element];
  }

  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Buffer>> rows_;
  std::unique_ptr<Buffer> master_, snapshot_;
};

TEST_F(EmulatedJoiningTest, WhatIsAllocatedWaitsForNoCopyOfOthers) {
  AllocateAll(1024);
  const int64_t num_waits = emulator::NumCalls().device_waits;
  // The second slice starts the first one's copy, which nobody awaits yet.
  Land({0, 512}, 3.0f);
  Land({768, 64}, 3.0f);
  std::vector<std::unique_ptr<Buffer>> joined;
  for (const BufferUse use :
       {BufferUse::kRow, BufferUse::kState, BufferUse::kSnapshot}) {
    joined.push_back(*backend_->Allocate(use, 4096));
  }
  alignas(4096) static char memory[4096];
  absl::Status registered;
  joined.push_back(
      *backend_->Adopt(BufferUse::kRow, memory, 4096, &registered));
  EXPECT_TRUE(registered.ok()) << registered;
  emulator::SetDeviceBytes(emulator::AllocatedDeviceBytes());
  EXPECT_EQ(backend_->Allocate(BufferUse::kRow, 4096).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(OnDevice(0, 0), 0.0f);
  EXPECT_EQ(emulator::NumCalls().device_waits, num_waits);
  EXPECT_EQ(Gram({0, 512}), 512 * 9.0);
}

// Nobody uses the second row when the first one goes; and its copies go on.
TEST_F(EmulatedJoiningTest, ARowThatGoesWaitsForItsOwnCopies) {
  auto copies = *cuda::RowCopies::Make();
  auto device = *cuda::AllocateDevice(64);
  auto host = *cuda::AllocatePinned(64, cuda::NumaNode());
  std::fill_n(host.get(), 64, 7);
  for (const int64_t row : {0, 32}) {
    copies->AddRow();
    // Two slices that do not touch: the first one's copy starts.
    copies->Land(host.get() + row, device.get() + row, {0, 4}, 4);
    copies->Land(host.get() + row, device.get() + row, {16, 20}, 4);
  }
  copies->Forget(host.get());
  EXPECT_EQ(device.get()[0], 7);
  EXPECT_EQ(device.get()[32], 0);
  EXPECT_EQ(copies->num_rows(), 1);
  copies->Forget(host.get() + 32);
  EXPECT_EQ(device.get()[32], 7);
}

TEST_F(EmulatedJoiningTest, MemoryBeginsAsZeros) {
  constexpr int64_t kNumElements = 4096;
  const auto state = *backend_->Allocate(BufferUse::kState, kNumElements * 4);
  std::vector<float> values(kNumElements, 1.0f);
  ASSERT_TRUE(backend_->Read(*state, absl::MakeSpan(values)).ok());
  EXPECT_THAT(values, testing::Each(0.0f));
  for (const bool registered : {true, false}) {
    emulator::SetRegisteredServesKernels(registered);
    const auto row = *backend_->Allocate(BufferUse::kRow, kNumElements * 4);
    for (const char* memory : {row->host(), row->device()}) {
      const auto* const begin = reinterpret_cast<const float*>(memory);
      EXPECT_THAT(std::vector<float>(begin, begin + kNumElements),
                  testing::Each(0.0f));
    }
  }
}

// Whichever way memory is pinned, and whatever the driver calls it.
TEST_F(EmulatedJoiningTest, MoreThanThereAreAddressesIsExhausted) {
  for (const bool registered : {true, false}) {
    emulator::SetRegisteredServesKernels(registered);
    const int64_t num_before = emulator::NumAllocations();
    const absl::Status status =
        backend_->Allocate(BufferUse::kSnapshot, int64_t{1} << 61).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::to_string(int64_t{1} << 61)));
    EXPECT_EQ(emulator::NumAllocations(), num_before);
  }
}

// Rows and versions of a piece and a little more.
constexpr int64_t kBorder = cuda::kPieceBytes / 4;
constexpr int64_t kLong = kBorder + 2048;

class PiecesTest : public EmulatedJoiningTest {
 protected:
  // A round whose one slice reaches from a piece into the next.
  void ExpectRound() {
    const ElementRange slice = {kBorder - 512, 1024};
    Land(slice, 2.0f);
    EXPECT_EQ(Gram(slice), 1024 * 4.0);
    const absl::Status status = Update(slice);
    ASSERT_TRUE(status.ok()) << status;
    const auto* const version = reinterpret_cast<float*>(snapshot_->host());
    EXPECT_EQ(version[kBorder - 513], 0.0f);
    for (const int64_t k :
         {kBorder - 512, kBorder - 1, kBorder, kBorder + 511}) {
      EXPECT_EQ(version[k], -2.0f);
    }
    EXPECT_EQ(version[kBorder + 512], 0.0f);
  }
};

TEST_F(PiecesTest, MemoryIsPinnedAndCopiedPieceByPiece) {
  const int64_t num_before = emulator::NumRegistered();
  AllocateAll(kLong);
  EXPECT_EQ(emulator::NumRegistered(), num_before + 3 * 2);
  EXPECT_EQ(emulator::LargestRegistered(), cuda::kPieceBytes);
  const int64_t staged_before = emulator::StagedBytes();
  ExpectRound();
  EXPECT_EQ(emulator::StagedBytes(), staged_before);
  rows_.clear();
  snapshot_ = nullptr;
  EXPECT_EQ(emulator::NumRegistered(), num_before);
}

// As on systems that pin by cudaHostAlloc alone.
TEST_F(PiecesTest, MemoryThatCannotBeRegisteredIsInOnePiece) {
  emulator::SetRegisteredServesKernels(false);
  const int64_t num_before = emulator::NumRegistered();
  AllocateAll(kLong);
  EXPECT_EQ(emulator::NumRegistered(), num_before);
  const int64_t staged_before = emulator::StagedBytes();
  ExpectRound();
  EXPECT_EQ(emulator::StagedBytes(), staged_before);
}

TEST_F(PiecesTest, APieceThatFailsEndsThoseBeforeIt) {
  auto* const memory = static_cast<char*>(
      mmap(nullptr, kLong * 4, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  AllocateAll(kLong);
  const int64_t num_before = emulator::NumRegistered();
  emulator::FailRegisteringAfter(1, cudaErrorMemoryAllocation);
  absl::Status registered;
  const auto row =
      *backend_->Adopt(BufferUse::kRow, memory, kLong * 4, &registered);
  EXPECT_EQ(registered.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(registered.message()),
              HasSubstr(std::to_string(kLong * 4)));
  EXPECT_EQ(emulator::NumRegistered(), num_before);
  // Of one's own there is another way.
  emulator::FailRegisteringAfter(1, cudaErrorOperatingSystem);
  snapshot_ = *backend_->Allocate(BufferUse::kSnapshot, kLong * 4);
  EXPECT_EQ(emulator::NumRegistered(), num_before - 2);
  const int64_t staged_before = emulator::StagedBytes();
  ExpectRound();
  EXPECT_EQ(emulator::StagedBytes(), staged_before);
  munmap(memory, kLong * 4);
}

}  // namespace
}  // namespace agg
