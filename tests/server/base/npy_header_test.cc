// Malformed headers: npy_test, through whole files.
#include "server/base/npy_header.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/worker_client/npz/npy_files.h"

namespace agg {
namespace {

TEST(NpyHeaderTest, IsAsNumpyWritesIt) {
  EXPECT_EQ(FormatNpyHeader("<f8", {3}),
            NpyPrefix(1, NpyHeader("<f8", "(3,)")));
  EXPECT_EQ(FormatNpyHeader("<f4", {2, 3}),
            NpyPrefix(1, NpyHeader("<f4", "(2, 3)")));
  EXPECT_EQ(FormatNpyHeader("<f4", {}), NpyPrefix(1, NpyHeader("<f4", "()")));
}

TEST(NpyHeaderTest, EveryPaddingIsReadBack) {
  std::vector<int64_t> shape;
  for (int i = 0; i < 70; ++i) {
    const std::string header = FormatNpyHeader("<f4", shape);
    EXPECT_EQ(header.size() % 64, 0u);
    EXPECT_EQ(header.back(), '\n');
    size_t data_offset = 0;
    const absl::StatusOr<NpyLayout> layout =
        ParseNpyHeader(header + "data", &data_offset);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(data_offset, header.size());
    EXPECT_EQ(layout->type, "<f4");
    EXPECT_FALSE(layout->fortran_order);
    EXPECT_EQ(layout->shape, shape);
    shape.push_back(i % 10);
  }
}

TEST(NpyHeaderTest, TheBeginningOfAFileIsEnough) {
  // As long as a header may be: all but the data of such a file.
  const std::string text = NpyHeader("<f4", "(2,)");
  const std::string file =
      NpyPrefix(2, text + std::string(65536 - text.size() - 64, ' '));
  ASSERT_LE(file.size(), kMaxNpyHeaderBytes);
  size_t data_offset = 0;
  EXPECT_TRUE(ParseNpyHeader(file, &data_offset).ok());
  EXPECT_EQ(data_offset, file.size());
  EXPECT_EQ(ParseNpyHeader(file.substr(0, 65000), &data_offset).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace agg
