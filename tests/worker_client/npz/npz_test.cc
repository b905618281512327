// What NumPy writes is read, and what is written NumPy reads.
#include "worker_client/npz/npz.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_client/npz/npy_files.h"
#include "tests/worker_client/npz/npz_files.h"

namespace agg {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectTensors(const std::string& path,
                   const std::vector<NpzTensor>& tensors) {
  const auto read = ReadNpz(path);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), tensors.size());
  for (size_t i = 0; i < read->size(); ++i) {
    EXPECT_EQ((*read)[i].name, tensors[i].name);
    EXPECT_EQ((*read)[i].shape, tensors[i].shape);
    EXPECT_EQ((*read)[i].values, tensors[i].values);
  }
}

TEST(NpzTest, ReadsWhatItWrote) {
  const std::string path = TestPath("round_trip.npz");
  ASSERT_TRUE(WriteNpz(path, SomeTensors()).ok());
  ExpectTensors(path, SomeTensors());
}

TEST(NpzTest, ReadsAnArchiveWithoutMembersAndWritesNone) {
  const std::string path = TestPath("none.npz");
  ASSERT_TRUE(RunPython("np.savez(sys.argv[1])", path));
  ExpectTensors(path, {});
  const absl::Status status = WriteNpz(path, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no tensors"));
  ExpectTensors(path, {});
}

TEST(NpzTest, EqualTensorsMakeEqualFiles) {
  const std::string a = TestPath("a.npz"), b = TestPath("b.npz");
  ASSERT_TRUE(WriteNpz(a, SomeTensors()).ok());
  ASSERT_TRUE(WriteNpz(b, SomeTensors()).ok());
  EXPECT_EQ(ReadTestFile(a), ReadTestFile(b));
  EXPECT_FALSE(std::filesystem::exists(a + ".part"));
}

// Python's zipfile and the documented .npy layout are the independent reader.
TEST(NpzTest, PythonReadsTheFile) {
  const std::string path = TestPath("python.npz");
  ASSERT_TRUE(WriteNpz(path, SomeTensors()).ok());
  EXPECT_TRUE(RunPython(R"(
import ast, struct
archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
names = ['hidden/weights.npy', 'bias.npy', 'scalar.npy', 'nothing.npy']
assert archive.namelist() == names, archive.namelist()
for info in archive.infolist():
    assert info.date_time == (1980, 1, 1, 0, 0, 0), info
    assert info.compress_type == zipfile.ZIP_STORED, info
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
)",
                        path));
}

TEST(NpzTest, NumpyReadsTheFile) {
  const std::string path = TestPath("numpy.npz");
  std::vector<NpzTensor> tensors = SomeTensors();
  tensors.push_back({"gr\u00f6\u00dfe", {1, 1, 2}, {0.1f, -0.0f}});
  ASSERT_TRUE(WriteNpz(path, tensors).ok());
  EXPECT_TRUE(RunPython(R"(
expected = {
    'hidden/weights': [[1, -2, 3.5], [0, 1e-30, 6]], 'bias': [7, 8],
    'scalar': 9, 'nothing': np.zeros((0, 4)),
    'gr\u00f6\u00dfe': [[[0.1, -0.0]]]}
with np.load(sys.argv[1], allow_pickle=False) as file:
    assert sorted(file.files) == sorted(expected), file.files
    for name, values in expected.items():
        values = np.asarray(values, np.float32)
        assert file[name].dtype == np.float32
        assert file[name].shape == values.shape, name
        assert file[name].tobytes() == values.tobytes(), name
)",
                        path));
}

TEST(NpzTest, ReadsFilesOfNumpy) {
  for (const std::string function : {"savez", "savez_compressed"}) {
    const std::string path = TestPath(function + ".npz");
    ASSERT_TRUE(RunPython("save = np." + function + R"(
save(sys.argv[1], **{
    'hidden/weights': np.array([[1, -2, 3.5], [0, 1e-30, 6]], np.float32),
    'zeros': np.zeros((3, 1000), np.float32),
    'scalar': np.float32(9), 'nothing': np.zeros((0, 4), np.float32),
    'gr\u00f6\u00dfe': np.array([0.1], np.float32)})
)",
                          path));
    ExpectTensors(path,
                  {{"hidden/weights", {2, 3}, {1, -2, 3.5f, 0, 1e-30f, 6}},
                   {"zeros", {3, 1000}, std::vector<float>(3000)},
                   {"scalar", {}, {9}},
                   {"nothing", {0, 4}, {}},
                   {"gr\u00f6\u00dfe", {1}, {0.1f}}});
  }
}

// As in files of more than 4 GiB: sizes and offsets are in Zip64 records.
TEST(NpzTest, ReadsZip64) {
  const std::string path = TestPath("zip64.npz");
  ASSERT_TRUE(RunPython(R"(
zipfile.ZIP64_LIMIT = 10
np.savez(sys.argv[1], x=np.array([1, 2], np.float32),
         y=np.array([3], np.float32))
)",
                        path));
  EXPECT_THAT(ReadTestFile(path), HasSubstr("PK\x06\x06"));
  ExpectTensors(path, {{"x", {2}, {1, 2}}, {"y", {1}, {3}}});
}

// Members that are written before their size is known have it behind them.
TEST(NpzTest, ReadsMembersWithSizesBehindThem) {
  const std::string path = TestPath("streamed.npz");
  ASSERT_TRUE(RunPython(R"(
class Pipe:
    def __init__(self, file):
        self.write, self.flush, self.read = file.write, file.flush, None
with open(sys.argv[1], 'wb') as file:
    np.savez_compressed(Pipe(file), x=np.array([1, 2], np.float32))
)",
                        path));
  ExpectTensors(path, {{"x", {2}, {1, 2}}});
}

TEST(NpzTest, AFailedWriteLeavesNothing) {
  const std::string path = TestPath("no_such_folder/x.npz");
  const absl::Status status = WriteNpz(path, SomeTensors());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(path + ": No such file or directory; check"));
}

// Files of this process may be so long and no longer: as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &old_); }

 private:
  rlimit old_;
};

TEST(NpzTest, AFullDiskLeavesTheOldFile) {
  const std::string path = TestPath("full.npz");
  ASSERT_TRUE(WriteNpz(path, SomeTensors()).ok());
  absl::Status status;
  {
    const FileSizeLimit limit(100000);
    status = WriteNpz(path, {{"x", {50000}, std::vector<float>(50000)}});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path), HasSubstr("File too large: "),
                    HasSubstr("ulimit -f")));
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  ExpectTensors(path, SomeTensors());
}

TEST(NpzTest, NamesThatCannotBeAreRefused) {
  const std::string path = TestPath("names.npz");
  for (const std::string& name :
       {std::string(65536, 'x'), std::string("\xff"), std::string("twice")}) {
    const absl::Status status =
        WriteNpz(path, {{"twice", {}, {1}}, {name, {}, {1}}});
    EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(path), HasSubstr("tensor \"" + name + "\"")));
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  }
}

// Files that are cut, altered or made to do harm: an error that names the file
// and the member, never other numbers, a crash or a wait.

const char kGoodHeader[] =
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";

void ExpectRefused(const std::string& path, const std::string& what) {
  const absl::Status status = ReadNpz(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_THAT(std::string(status.message()), HasSubstr(what));
}

// One file after another. A file that is cut to nothing and written again is
// flushed to the disk by some file systems; a new one is not.
std::string WriteAnew(const std::string& bytes) {
  std::filesystem::remove(TestPath("bad.npz"));
  return WriteTestFile("bad.npz", bytes);
}

// The tensors of SomeTensors, stored and deflated.
std::vector<std::string> GoodFiles() {
  const std::string stored = TestPath("good.npz");
  EXPECT_TRUE(WriteNpz(stored, SomeTensors()).ok());
  const std::string deflated = TestPath("deflated.npz");
  EXPECT_TRUE(RunPython(R"(
with np.load(sys.argv[1]) as source:
    np.savez_compressed(sys.argv[2], **{name: source[name] for name in source})
)",
                        stored + " " + deflated));
  return {ReadTestFile(stored), ReadTestFile(deflated)};
}

TEST(DamagedNpzTest, EveryCutFileIsAnErrorNotACrash) {
  for (const std::string& good : GoodFiles()) {
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
      const std::string cut = WriteAnew(good.substr(0, bytes));
      EXPECT_EQ(ReadNpz(cut).status().code(),
                absl::StatusCode::kInvalidArgument)
          << bytes;
    }
  }
}

TEST(DamagedNpzTest, AFlippedByteIsNeverReadAsOtherNumbers) {
  for (const std::string& good : GoodFiles()) {
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
      const auto read = ReadNpz(WriteAnew(bytes));
      if (!read.ok()) continue;
      // Fields that no reader needs (dates, attributes) and names may change.
      ASSERT_EQ(read->size(), SomeTensors().size()) << at;
      for (size_t i = 0; i < read->size(); ++i) {
        EXPECT_EQ((*read)[i].values, SomeTensors()[i].values) << at;
      }
    }
  }
}

TEST(DamagedNpzTest, SaysWhatItCannotRead) {
  const auto npy = [](const std::string& header, size_t num_bytes) {
    return NpyPrefix(1, header) + std::string(num_bytes, '\0');
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", 8),
       "type is '<f8'; allowed: '<f4'"},
      {npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1,)}", 4),
       "Fortran order; allowed: C order"},
      {npy(kGoodHeader, 4), "holds 4 bytes"},
      {npy(kGoodHeader, 9), "holds 9 bytes"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 0),
       "not a valid .npy dictionary"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': "
           "(9999999999, 9999999999)}",
           0),
       "holds 0 bytes"},
      {npy("{'descr': '<f4', 'fortran_order': False}", 0),
       "not a valid .npy dictionary"},
      {"text", "not a .npy file"},
      {"", "not a .npy file"},
  };
  for (const auto& c : cases) {
    for (const bool deflated : {false, true}) {
      const std::string path =
          ZipFile("made.npz", {{"x.npy", c.first}}, deflated);
      ExpectRefused(path, absl::StrCat("member \"x.npy\": "));
      ExpectRefused(path, c.second);
    }
  }
  EXPECT_EQ(ReadNpz(TestPath("missing.npz")).status().code(),
            absl::StatusCode::kNotFound);
  ExpectRefused(WriteTestFile("text.npz", "text"), "numpy.savez");
}

TEST(DamagedNpzTest, OtherMethodsAndEncryptionAreNamed) {
  const std::string path = TestPath("method.npz");
  ASSERT_TRUE(RunPython(R"(
with zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_BZIP2) as file:
    file.writestr('x.npy', b'text')
)",
                        path));
  ExpectRefused(path, "compression method is 12; allowed: 0 (stored)");
  // The flags are at 6 of the local header, and at 8 of the directory's.
  std::string bytes = ReadTestFile(ZipFile("plain.npz", {{"x.npy", "text"}}));
  const size_t directory = bytes.find("PK\x01\x02");
  bytes[6] = static_cast<char>(bytes[6] | 1);
  bytes[directory + 8] = static_cast<char>(bytes[directory + 8] | 1);
  ExpectRefused(WriteTestFile("secret.npz", bytes), "encrypted");
}

// Nothing is allocated for a size that the file cannot hold.
TEST(DamagedNpzTest, ASizeThatCannotBeIsRefused) {
  for (const bool deflated : {false, true}) {
    std::string bytes =
        ReadTestFile(ZipFile("sizes.npz", {{"x.npy", "text"}}, deflated));
    // The contents' size, in the local header and in the directory's.
    const size_t directory = bytes.find("PK\x01\x02");
    for (const size_t at : {size_t{22}, directory + 24}) {
      bytes.replace(at, 4, "\xf0\xff\xff\xff", 4);
    }
    ExpectRefused(WriteTestFile("huge.npz", bytes),
                  "member \"x.npy\": it is damaged");
  }
}

TEST(DamagedNpzTest, OverlappingMembersAreRefused) {
  const std::string path = TestPath("overlap.npz");
  ASSERT_TRUE(RunPython(R"(
with zipfile.ZipFile(sys.argv[1], 'w') as file:
    data = np.lib.format
    with file.open('x.npy', 'w') as member:
        data.write_array(member, np.zeros(1000, np.float32))
    file.filelist *= 3  # three entries of the directory, one member
)",
                        path));
  ExpectRefused(path, "member \"x.npy\": the members have more bytes");
}

TEST(DamagedNpzTest, WhatIsNotAFileIsRefusedAtOnce) {
  const std::string pipe = TestPath("pipe.npz");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  ExpectRefused(pipe, "not a regular file");
  ExpectRefused(::testing::TempDir(), "not a regular file");
}

}  // namespace
}  // namespace agg
