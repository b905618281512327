// Memory that cannot be shared is private, and counted by why.
#include "server/params/shared_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "server/shard/guarded_backend.h"
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

// Looks at what it is to adopt.
class LookingBackend : public GuardedBackend {
 public:
  explicit LookingBackend(Backend* backend) : GuardedBackend(backend) {}

  absl::StatusOr<std::unique_ptr<Buffer>> Adopt(
      BufferUse use, char* host, int64_t num_bytes,
      absl::Status* registered) override {
    num_touched += NumTouched(host, num_bytes);
    return GuardedBackend::Adopt(use, host, num_bytes, registered);
  }

  static int64_t NumTouched(char* memory, int64_t num_bytes) {
    std::vector<unsigned char> pages((num_bytes + 4095) / 4096);
    EXPECT_EQ(mincore(memory, static_cast<size_t>(num_bytes), pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(),
                         [](unsigned char page) { return (page & 1) != 0; });
  }

  int64_t num_touched = 0;
};

// A device's backend says on which node pages shall be; then all are taken.
TEST_F(SharedBufferTest, NobodyTouchesItBeforeTheBackendHasIt) {
  LookingBackend looking(backend_.get());
  for (const BufferUse use : {BufferUse::kRow, BufferUse::kSnapshot}) {
    const auto buffer = *AllocateHost(&looking, use, kBytes, true);
    EXPECT_EQ(looking.num_touched, 0);
    const int64_t num_touched =
        LookingBackend::NumTouched(buffer->host(), kBytes);
    // Linux before 5.14 does not know how.
    if (madvise(buffer->host(), 4096, MADV_POPULATE_WRITE) == 0) {
      EXPECT_EQ(num_touched, (kBytes + 4095) / 4096);
    }
  }
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
