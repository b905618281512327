#include "server/base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::HasSubstr;
using Others = SharedMemory::Others;

FileDescriptor Copy(const SharedMemory& memory) {
  return FileDescriptor(fcntl(memory.fd(), F_DUPFD_CLOEXEC, 0));
}

TEST(SharedMemoryTest, TwoMappingsAreOneMemory) {
  for (const int64_t size : {int64_t{1}, int64_t{5000}, int64_t{5} << 20}) {
    const auto memory = *SharedMemory::Create(size, Others::kWrite);
    EXPECT_TRUE(memory->Populate().ok());
    const auto mapped = *SharedMemory::Map(Copy(*memory), size, Others::kWrite);
    EXPECT_NE(mapped->data(), memory->data());
    EXPECT_EQ(mapped->data()[size - 1], 0);
    mapped->data()[size - 1] = 'x';
    EXPECT_EQ(memory->data()[size - 1], 'x');
  }
}

TEST(SharedMemoryTest, LargeOnesAreAlignedToHugePages) {
  const auto memory = *SharedMemory::Create(int64_t{3} << 20, Others::kRead);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % (2 << 20), 0u);
}

TEST(SharedMemoryTest, NobodyChangesItsSize) {
  const auto memory = *SharedMemory::Create(8192, Others::kWrite);
  EXPECT_NE(ftruncate(memory->fd(), 4096), 0);
  EXPECT_NE(ftruncate(memory->fd(), 16384), 0);
  EXPECT_NE(fcntl(memory->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedMemoryTest, WhatOthersMayReadTheyCannotWrite) {
  const auto memory = *SharedMemory::Create(8192, Others::kRead);
  memory->data()[1] = 'x';
  const FileDescriptor fd = Copy(*memory);
  EXPECT_FALSE(SharedMemory::Map(fd, 8192, Others::kWrite).ok());
  EXPECT_EQ(write(fd.get(), "y", 1), -1);
  const auto mapped = *SharedMemory::Map(fd, 8192, Others::kRead);
  EXPECT_EQ(mapped->data()[1], 'x');
  EXPECT_NE(mprotect(mapped->data(), 4096, PROT_READ | PROT_WRITE), 0);
}

// A shard that lies, or is another program.
TEST(SharedMemoryTest, WhatCouldEndTheProcessIsNotMapped) {
  const auto memory = *SharedMemory::Create(8192, Others::kWrite);
  for (const int64_t size : {int64_t{8193}, int64_t{0}, int64_t{-1}}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(
        SharedMemory::Map(Copy(*memory), size, Others::kWrite).status()));
  }
  const FileDescriptor open(memfd_create("open", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(open.get(), 8192), 0);
  const absl::Status refused =
      SharedMemory::Map(open, 8192, Others::kWrite).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(), HasSubstr("not sealed"));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const FileDescriptor in(ends[0]);
  const FileDescriptor out(ends[1]);
  EXPECT_FALSE(SharedMemory::Map(in, 1, Others::kRead).ok());
}

// Whoever still maps it has what was written.
TEST(SharedMemoryTest, ItOutlivesItsOwner) {
  auto memory = *SharedMemory::Create(8192, Others::kWrite);
  memory->data()[1] = 'x';
  const auto mapped = *SharedMemory::Map(Copy(*memory), 8192, Others::kWrite);
  memory = nullptr;
  EXPECT_EQ(mapped->data()[1], 'x');
}

// Whoever still maps it sees zeros, and costs nothing.
TEST(SharedMemoryTest, ItIsEmptyWhereItsOwnerWantsThat) {
  auto memory = *SharedMemory::Create(8192, Others::kWrite);
  memory->data()[1] = 'x';
  const auto mapped = *SharedMemory::Map(Copy(*memory), 8192, Others::kWrite);
  memory->EmptyAtEnd();
  EXPECT_EQ(mapped->data()[1], 'x');
  memory = nullptr;
  EXPECT_EQ(mapped->data()[1], 0);
}

TEST(SharedMemoryTest, ThereIsNotAlwaysEnough) {
  EXPECT_TRUE(absl::IsInvalidArgument(
      SharedMemory::Create(0, Others::kWrite).status()));
  EXPECT_TRUE(absl::IsUnavailable(
      SharedMemory::Create(std::numeric_limits<int64_t>::max() / 4,
                           Others::kWrite)
          .status()));
}

}  // namespace
}  // namespace agg
