// Copies to the row, of which nobody is told before they are done. What a shard
// says of it that is not so: device_rows_test.cc.
#include "worker_client/device_row.h"

#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/device_memory/cuda_driver.h"
#include "kernels/device_memory/device_context.h"
#include "kernels/device_memory/shared_device_memory.h"
#include "proto/region.pb.h"
#include "server/base/file_descriptor.h"
#include "server/base/shared_memory.h"
#include "tests/kernels/device_memory/fake_cuda.h"

namespace agg {
namespace {

constexpr int64_t kBytes = 64;

class DeviceRowTest : public testing::Test {
 protected:
  DeviceRowTest() {
    const absl::Span<const float> tensor(reinterpret_cast<float*>(from_), 16);
    EXPECT_TRUE(devices_.DevicesOf({TensorView(tensor)}).ok());
    const DeviceUuid uuid = *context_->driver().UuidOf(0);
    said_.set_bytes(kBytes);
    said_.set_mapped_bytes(static_cast<uint64_t>(memory_->mapped_bytes()));
    said_.set_dtype(v1::F32);
    said_.set_uuid(std::string(uuid.begin(), uuid.end()));
    auto row = DeviceRow::Map(said_, DType::kF32, kBytes,
                              FileDescriptor(dup(memory_->fd())), 0, &devices_);
    EXPECT_TRUE(row.ok()) << row.status();
    if (row.ok()) row_ = *std::move(row);
  }
  ~DeviceRowTest() override {
    row_ = nullptr;
    fake_cuda::Free(from_);
  }

  std::string Row() const { return std::string(memory_->data(), kBytes); }

  char* const from_ = fake_cuda::Alloc(kBytes);
  const std::shared_ptr<const DeviceContext> context_ =
      *DeviceContext::Retain(*CudaDriver::Load(kFakeCudaPath), 0);
  const std::unique_ptr<SharedDeviceMemory> memory_ =
      *SharedDeviceMemory::Create(context_, kBytes);
  TensorDevices devices_;
  v1::DeviceRegion said_;
  std::unique_ptr<DeviceRow> row_;
};

// A frame is told of when its copies are done, and not those of the next one.
TEST_F(DeviceRowTest, CopiesAreDoneWhenTheirMarkIs) {
  std::memset(memory_->data(), 0, kBytes);
  std::memset(from_, 'x', kBytes);
  fake_cuda::Hang(0, true);  // the caller's stream is nobody's here
  fake_cuda::Launch(0, [] {});
  ASSERT_TRUE(row_->Copy(0, from_, 0, 32).ok());
  auto first = row_->Mark();
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(row_->Copy(0, from_ + 32, 32, 32).ok());
  auto second = row_->Mark();
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(Row(), std::string(kBytes, '\0'));
  ASSERT_TRUE(row_->Await(*std::move(first)).ok());
  EXPECT_EQ(Row(), std::string(32, 'x') + std::string(32, '\0'));
  ASSERT_TRUE(row_->Await(*std::move(second)).ok());
  EXPECT_EQ(Row(), std::string(kBytes, 'x'));
  fake_cuda::Hang(0, false);
}

TEST_F(DeviceRowTest, NeighboursOfOneTensorAreOneCopy) {
  ASSERT_TRUE(row_->Copy(0, from_, 16, 8).ok());
  ASSERT_TRUE(row_->Copy(0, from_ + 8, 24, 8).ok());   // of both
  ASSERT_TRUE(row_->Copy(0, from_ + 16, 40, 8).ok());  // not in the row
  ASSERT_TRUE(row_->Copy(0, from_ + 32, 48, 8).ok());  // not in the tensor
  ASSERT_TRUE(row_->Copy(1, from_ + 40, 56, 8).ok());  // of another one
  auto event = row_->Mark();
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(row_->num_copies(), 4);
  ASSERT_TRUE(row_->Await(*std::move(event)).ok());
  // One that was waited for is used again.
  const int64_t made = fake_cuda::NumCalls("cuEventCreate");
  event = row_->Mark();
  ASSERT_TRUE(event.ok());
  EXPECT_EQ(fake_cuda::NumCalls("cuEventCreate"), made);
  ASSERT_TRUE(row_->Await(*std::move(event)).ok());
}

// The fixture's memory as the shard's parameters.
TEST_F(DeviceRowTest, ParametersOfOneTensorAreOneCopy) {
  const auto page = SharedMemory::Create(4096, SharedMemory::Others::kRead);
  ASSERT_TRUE(page.ok()) << page.status();
  const auto parameters =
      DeviceParameters::Map(said_, FileDescriptor(dup(memory_->fd())),
                            FileDescriptor(dup((*page)->fd())), 0, &devices_);
  ASSERT_TRUE(parameters.ok()) << parameters.status();
  for (int i = 0; i < kBytes; ++i) memory_->data()[i] = static_cast<char>(i);
  std::memset(from_, 0, kBytes);
  auto* const to = reinterpret_cast<float*>(from_);
  const DeviceParameters::Place places[] = {
      {0, 16, to, 8},     {0, 24, to + 2, 4},  // neighbours in both
      {0, 32, to + 3, 4},                      // not at the shard's
      {0, 36, to + 5, 4},                      // not in the tensor
      {1, 40, to + 6, 4},                      // of another tensor
      {1, 44, to + 7, 0},                      // nothing
  };
  ASSERT_TRUE((*parameters)->Begin(places).ok());
  EXPECT_EQ((*parameters)->num_copies(), 4);
  ASSERT_TRUE((*parameters)->Finish(0).ok());
  const std::string expected = {16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                                26, 27, 32, 33, 34, 35, 0,  0,  0,  0,
                                36, 37, 38, 39, 40, 41, 42, 43};
  EXPECT_EQ(std::string(from_, 28), expected);
}

TEST_F(DeviceRowTest, WhatIsDiscardedIsNotBegun) {
  std::memset(memory_->data(), 0, kBytes);
  std::memset(from_, 'x', kBytes);
  ASSERT_TRUE(row_->Copy(0, from_, 0, 8).ok());
  row_->Discard();
  auto event = row_->Mark();
  ASSERT_TRUE(event.ok());
  ASSERT_TRUE(row_->Await(*std::move(event)).ok());
  EXPECT_EQ(Row(), std::string(kBytes, '\0'));
}

TEST_F(DeviceRowTest, ADeviceWithoutPeerAccessIsNotUsed) {
  fake_cuda::SetNumDevices(2);
  fake_cuda::SetPeers(false);
  const FileDescriptor fd(dup(memory_->fd()));
  EXPECT_TRUE(absl::IsUnimplemented(
      DeviceRow::Map(said_, DType::kF32, kBytes, fd, 1, &devices_).status()));
  fake_cuda::SetPeers(true);
  EXPECT_TRUE(
      DeviceRow::Map(said_, DType::kF32, kBytes, fd, 1, &devices_).ok());
  fake_cuda::SetNumDevices(1);
}

}  // namespace
}  // namespace agg
