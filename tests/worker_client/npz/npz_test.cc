#include "worker_client/npz/npz.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_client/npz/zip_bytes.h"
#include "worker_client/npz/zip_file.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

std::string TempPath(const std::string& name) {
  return absl::StrCat(::testing::TempDir(), "/", name);
}

std::string Contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

std::vector<NpzTensor> SomeTensors() {
  return {{"hidden/weights", {2, 3}, {1, -2, 3.5f, 0, 1e-30f, 6}},
          {"bias", {2}, {7, 8}},
          {"scalar", {}, {9}},
          {"nothing", {0, 4}, {}}};
}

TEST(NpzTest, ReadsWhatItWrote) {
  const std::string path = TempPath("round_trip.npz");
  ASSERT_TRUE(WriteNpz(path, SomeTensors()).ok());
  const auto read = ReadNpz(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), SomeTensors().size());
  for (size_t i = 0; i < read->size(); ++i) {
    EXPECT_EQ((*read)[i].name, SomeTensors()[i].name);
    EXPECT_EQ((*read)[i].shape, SomeTensors()[i].shape);
    EXPECT_EQ((*read)[i].values, SomeTensors()[i].values);
  }
}

TEST(NpzTest, EqualTensorsMakeEqualFiles) {
  const std::string a = TempPath("a.npz"), b = TempPath("b.npz");
  ASSERT_TRUE(WriteNpz(a, SomeTensors()).ok());
  ASSERT_TRUE(WriteNpz(b, SomeTensors()).ok());
  EXPECT_EQ(Contents(a), Contents(b));
}

// Python's zipfile and the documented .npy layout are the independent reader.
TEST(NpzTest, PythonReadsTheFile) {
  const std::string path = TempPath("python.npz");
  ASSERT_TRUE(WriteNpz(path, SomeTensors()).ok());
  const std::string script = TempPath("read.py");
  WriteFile(script, R"(
import ast, struct, sys, zipfile
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
names = ['hidden/weights.npy', 'bias.npy', 'scalar.npy', 'nothing.npy']
assert archive.namelist() == names, archive.namelist()
data = archive.read('hidden/weights.npy')
assert data[:8] == b'\x93NUMPY\x01\x00'
length = struct.unpack('<H', data[8:10])[0]
assert (10 + length) % 64 == 0
header = ast.literal_eval(data[10:10 + length].decode())
assert header == {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}
values = struct.unpack('<6f', data[10 + length:])
assert values[:4] == (1, -2, 3.5, 0) and values[5] == 6, values
data = archive.read('bias.npy')
assert ast.literal_eval(data[10:].split(b'\n')[0].decode())['shape'] == (2,)
)");
  EXPECT_EQ(std::system(absl::StrCat("python3 ", script, " ", path).c_str()),
            0);
}

TEST(NpzTest, ReadsCompressedFilesOfPython) {
  const std::string stored = TempPath("stored.npz");
  const std::string deflated = TempPath("deflated.npz");
  std::vector<NpzTensor> tensors = SomeTensors();
  tensors.push_back({"zeros", {1000}, std::vector<float>(1000)});
  ASSERT_TRUE(WriteNpz(stored, tensors).ok());
  const std::string script = TempPath("compress.py");
  WriteFile(script, R"(
import sys, zipfile
source = zipfile.ZipFile(sys.argv[1])
with zipfile.ZipFile(sys.argv[2], 'w', zipfile.ZIP_DEFLATED) as target:
    for name in source.namelist():
        with target.open(name, 'w', force_zip64=True) as entry:
            entry.write(source.read(name))
)");
  ASSERT_EQ(
      std::system(
          absl::StrCat("python3 ", script, " ", stored, " ", deflated).c_str()),
      0);
  const auto read = ReadNpz(deflated);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), tensors.size());
  for (size_t i = 0; i < read->size(); ++i) {
    EXPECT_EQ((*read)[i].values, tensors[i].values) << tensors[i].name;
  }
}

TEST(NpzTest, EveryCutFileIsAnErrorNotACrash) {
  const std::string path = TempPath("whole.npz"), cut = TempPath("cut.npz");
  ASSERT_TRUE(WriteNpz(path, SomeTensors()).ok());
  const std::string whole = Contents(path);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    WriteFile(cut, whole.substr(0, bytes));
    EXPECT_EQ(ReadNpz(cut).status().code(), absl::StatusCode::kInvalidArgument)
        << bytes;
  }
}

TEST(NpzTest, AFlippedByteIsNeverReadAsOtherNumbers) {
  const std::string path = TempPath("good.npz"), bad = TempPath("bad.npz");
  ASSERT_TRUE(WriteNpz(path, SomeTensors()).ok());
  const std::string good = Contents(path);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    WriteFile(bad, bytes);
    const auto read = ReadNpz(bad);  // must not crash
    if (!read.ok()) continue;
    // Fields that no reader needs (dates, attributes) and names may change.
    for (size_t i = 0; i < read->size(); ++i) {
      EXPECT_EQ((*read)[i].values, SomeTensors()[i].values) << at;
    }
  }
}

std::string ZipOf(const std::string& name, const std::string& contents) {
  const std::string path = TempPath("made.npz");
  ZipWriter writer(path);
  writer.Add(name, {contents});
  EXPECT_TRUE(writer.Finish().ok());
  return path;
}

std::string Npy(const std::string& dictionary, const std::string& data) {
  std::string out("\x93NUMPY\x01\x00", 8);
  AppendLittleEndian<uint16_t>(static_cast<uint16_t>(dictionary.size()), &out);
  return out + dictionary + data;
}

TEST(NpzTest, SaysWhatItCannotRead) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {Npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}",
           std::string(8, '\0')),
       "not little-endian float32"},
      {Npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}",
           std::string(4, '\0')),
       "Fortran order"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
           std::string(4, '\0')),
       "needs 2 float32"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", ""),
       "no list of sizes"},
      {Npy("{'descr': '<f4', 'fortran_order': False, 'shape': "
           "(9999999999, 9999999999)}",
           ""),
       "no list of sizes"},
      {Npy("{'descr': '<f4', 'fortran_order': False}", ""), "no shape"},
      {"text", "no .npy file"},
  };
  for (const auto& c : cases) {
    const absl::Status status = ReadNpz(ZipOf("x.npy", c.first)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.second));
    EXPECT_THAT(std::string(status.message()), HasSubstr("x.npy"));
  }
  EXPECT_EQ(ReadNpz(TempPath("missing.npz")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(NpzTest, AFailedWriteLeavesNothing) {
  const std::string path = TempPath("no_such_folder/x.npz");
  const absl::Status status = WriteNpz(path, SomeTensors());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
}

}  // namespace
}  // namespace agg
