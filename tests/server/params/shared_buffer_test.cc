// Memory that cannot be shared is private, and counted by why.
#include "server/params/shared_buffer.h"

#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "tests/server/base/no_large_files.h"

namespace agg {
namespace {

constexpr int64_t kBytes = NoLargeFiles::kMaxBytes + 1;

class SharedBufferTest : public testing::Test {
 protected:
  SharedBufferTest() : backend_(*MakeBackend("cpu", {1})) {}

  std::unique_ptr<Buffer> Allocate(BufferUse use, bool shared) {
    auto buffer = AllocateHost(backend_.get(), use, kBytes, shared);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : nullptr;
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(SharedBufferTest, IsSharedIfItMayBe) {
  const SharedFallbacks before = CountSharedFallbacks();
  const auto shared = Allocate(BufferUse::kRow, true);
  EXPECT_NE(SharedBuffer::RegionOf(shared.get()), nullptr);
  const auto own = Allocate(BufferUse::kRow, false);
  EXPECT_EQ(SharedBuffer::RegionOf(own.get()), nullptr);
  EXPECT_EQ(shared->device(), nullptr);  // the CPU has none
  EXPECT_EQ(CountSharedFallbacks().rows_refused, before.rows_refused);
}

TEST_F(SharedBufferTest, WhatTheSystemRefusesToShareIsPrivateAndCounted) {
  const SharedFallbacks before = CountSharedFallbacks();
  const NoLargeFiles limit;
  const auto row = Allocate(BufferUse::kRow, true);
  const auto version = Allocate(BufferUse::kSnapshot, true);
  const auto second = Allocate(BufferUse::kSnapshot, true);
  for (const Buffer* buffer : {row.get(), version.get(), second.get()}) {
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(SharedBuffer::RegionOf(buffer), nullptr);
    buffer->host()[kBytes - 1] = 'x';  // all of it is there
  }
  const SharedFallbacks after = CountSharedFallbacks();
  EXPECT_EQ(after.rows_refused - before.rows_refused, 1);
  EXPECT_EQ(after.versions_refused - before.versions_refused, 2);
  EXPECT_EQ(after.rows_no_memory, before.rows_no_memory);
  EXPECT_EQ(after.versions_no_memory, before.versions_no_memory);
}

}  // namespace
}  // namespace agg
