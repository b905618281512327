#include "proto/stream_copy.h"

#include <cstddef>
#include <string>

#include "gtest/gtest.h"

namespace agg {
namespace {

std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(i * 131 + i / 251);
  }
  return bytes;
}

// Around whole lines, from and to every place within a line.
TEST(StreamCopyTest, CopiesAllBytesAndNoOthers) {
  const std::string source = Bytes(400);
  for (size_t from = 0; from < 3; ++from) {
    for (size_t to = 0; to < 65; ++to) {
      for (const size_t size : {0, 1, 63, 64, 65, 127, 128, 200, 300}) {
        std::string expected(500, 'x');
        expected.replace(to, size, source, from, size);
        std::string destination(500, 'x');
        StreamCopy(&destination[to], &source[from], size);
        ASSERT_EQ(destination, expected) << from << " " << to << " " << size;
      }
    }
  }
}

TEST(StreamCopyTest, LargeAndSmallCopiesAreTheSame) {
  for (const size_t size : {kStreamBytes - 1, kStreamBytes, kStreamBytes + 7}) {
    const std::string source = Bytes(size);
    std::string destination(size + 1, 'x');
    CopyBytes(&destination[0], source.data(), size);
    EXPECT_EQ(destination, source + "x") << size;
  }
}

}  // namespace
}  // namespace agg
