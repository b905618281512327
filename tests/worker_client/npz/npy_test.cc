#include "worker_client/npz/npy.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_client/npz/malformed_npy.h"
#include "tests/worker_client/npz/npy_files.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NpyReaderTest, ReadsEveryTypeAndVersion) {
  const Rows rows = {{1, -2.5, 0x1p-24}, {-0.0, 65504, 0x1.8p-15}};
  for (const char* type : {"<f2", "<f4", "<f8"}) {
    for (const int version : {1, 2, 3}) {
      const auto matrix =
          ReadNpyMatrix(WriteTestFile("good.npy", Npy(rows, type, version)));
      ASSERT_TRUE(matrix.ok()) << matrix.status();
      EXPECT_EQ(matrix->num_rows, 2);
      EXPECT_EQ(matrix->num_elements, 3);
      EXPECT_EQ(matrix->is_float64, std::string(type) == "<f8");
      for (int i = 0; i < 2; ++i) {
        for (int k = 0; k < 3; ++k) {
          EXPECT_EQ(matrix->row(i)[k], rows[i][k]) << type;
        }
      }
      EXPECT_TRUE(std::signbit(matrix->row(1)[0]));
    }
  }
}

TEST(NpyReaderTest, ReadsEveryHalf) {
  Rows rows(1);
  for (int exponent = -24; exponent <= 15; ++exponent) {
    for (int mantissa = 1024; mantissa < 2048; ++mantissa) {
      const double value = std::ldexp(mantissa, exponent - 10);
      // Exact in half precision: a multiple of 2^-24.
      if (std::ldexp(value, 24) != std::floor(std::ldexp(value, 24))) continue;
      rows[0].push_back(value);
      rows[0].push_back(-value);
    }
  }
  rows[0].push_back(kInfinity);
  rows[0].push_back(-kInfinity);
  const auto matrix =
      ReadNpyMatrix(WriteTestFile("half.npy", Npy(rows, "<f2")));
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_EQ(matrix->values, rows[0]);
}

TEST(NpyReaderTest, ReadsNanAndRowsWithoutElements) {
  const auto nan = ReadNpyMatrix(WriteTestFile(
      "nan.npy", Npy({{std::numeric_limits<double>::quiet_NaN(), 1}}, "<f2")));
  ASSERT_TRUE(nan.ok()) << nan.status();
  EXPECT_TRUE(std::isnan(nan->values[0]));
  const auto empty = ReadNpyMatrix(
      WriteTestFile("empty.npy", NpyPrefix(1, NpyHeader("<f4", "(3, 0)"))));
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_EQ(empty->num_rows, 3);
  EXPECT_EQ(empty->num_elements, 0);
}

TEST(NpyReaderTest, TakesAnyOrderOfKeysAndSpaces) {
  const std::string header =
      "{\"shape\":(1,2),'fortran_order'  :False ,\n'descr':\"<f8\"}";
  const auto matrix = ReadNpyMatrix(WriteTestFile(
      "order.npy", NpyPrefix(1, header) + NpyData({{3, 4}}, "<f8")));
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_EQ(matrix->values, (std::vector<double>{3, 4}));
}

TEST(NpyReaderTest, RefusesMalformedFilesByName) {
  for (const MalformedNpy& file : MalformedNpyFiles()) {
    const std::string path = WriteTestFile(file.name + ".npy", file.bytes);
    const absl::Status status = ReadNpyMatrix(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << file.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr(file.message));
  }
}

TEST(NpyReaderTest, RefusesWhatIsNoReadableFile) {
  for (const std::string& path :
       {std::string("no/such/file.npy"), std::string(::testing::TempDir())}) {
    const absl::Status status = ReadNpyMatrix(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

TEST(NpyWriterTest, WritesWhatNumpyReads) {
  const std::string path = ::testing::TempDir() + "/out.npy";
  const std::vector<double> values = {1.5, -2, kInfinity};
  ASSERT_TRUE(WriteNpyVector(path, values).ok());
  const std::string bytes = ReadTestFile(path);
  const std::string prefix = NpyPrefix(1, NpyHeader("<f8", "(3,)"));
  EXPECT_EQ(prefix.size() % 64, 0u);
  EXPECT_EQ(bytes, prefix + NpyData({values}, "<f8"));
}

TEST(NpyWriterTest, DoesNotReplaceAPipe) {
  const std::string path = ::testing::TempDir() + "/pipe.npy";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const absl::Status status = WriteNpyVector(path, {1.0});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a regular file"));
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(NpyWriterTest, SaysWhatItCannotWrite) {
  const absl::Status status = WriteNpyVector("no/such/folder/out.npy", {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no/such/folder"));
}

}  // namespace
}  // namespace agg
