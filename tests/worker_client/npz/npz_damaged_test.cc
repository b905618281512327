// Files that are cut, altered or made to do harm: an error that names the file
// and the member, never other numbers, a crash or a wait.
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
#include "worker_client/npz/npz.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

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
