#include "proto/crc32c.h"

#include <string>

#include "gtest/gtest.h"

namespace agg {
namespace {

// RFC 3720, B.4.
TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(Crc32cTest, WordsAreLittleEndian) {
  EXPECT_EQ(Crc32cOfWords({}), 0u);
  EXPECT_EQ(Crc32cOfWords({0x34333231, 0x38373635}), Crc32c("12345678"));
}

TEST(Crc32cTest, PiecesGiveTheWhole) {
  const std::string bytes = "the quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    uint32_t crc = ExtendCrc32c(kCrc32cInit, bytes.substr(0, cut));
    crc = ExtendCrc32c(crc, bytes.substr(cut));
    EXPECT_EQ(FinishCrc32c(crc), Crc32c(bytes)) << cut;
  }
}

TEST(Crc32cTest, ChecksumsOfPiecesGiveThatOfTheWhole) {
  const std::string bytes = "the quick brown fox jumps over the lazy dog";
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_EQ(
        ConcatCrc32c(Crc32c(bytes.substr(0, cut)), Crc32c(bytes.substr(cut)),
                     static_cast<int64_t>(bytes.size() - cut)),
        Crc32c(bytes))
        << cut;
  }
  const std::string large(1234567, 'x');
  EXPECT_EQ(ConcatCrc32c(Crc32c("ab"), Crc32c(large),
                         static_cast<int64_t>(large.size())),
            Crc32c("ab" + large));
}

}  // namespace
}  // namespace agg
