#include "tests/worker_client/npz/npz_files.h"

#include <zip.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/worker_client/npz/npy_files.h"

namespace agg {

std::string TestPath(const std::string& name) {
  return absl::StrCat(::testing::TempDir(), "/", name);
}

std::vector<NpzTensor> SomeTensors() {
  return {{"hidden/weights", {2, 3}, {1, -2, 3.5f, 0, 1e-30f, 6}},
          {"bias", {2}, {7, 8}},
          {"scalar", {}, {9}},
          {"nothing", {0, 4}, {}}};
}

bool RunPython(const std::string& script, const std::string& arguments) {
  const std::string path = WriteTestFile(
      "script.py", "import sys, zipfile\nimport numpy as np\n" + script);
  // The one that has Debian's NumPy, not one that comes first in PATH.
  return std::system(
             absl::StrCat("/usr/bin/python3 ", path, " ", arguments).c_str()) ==
         0;
}

std::string ZipFile(
    const std::string& file,
    const std::vector<std::pair<std::string, std::string>>& members,
    bool deflated) {
  const std::string path = TestPath(file);
  zip_t* const zip = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  EXPECT_NE(zip, nullptr);
  for (const auto& [name, contents] : members) {
    const zip_int64_t index = zip_file_add(
        zip, name.c_str(),
        zip_source_buffer(zip, contents.data(), contents.size(), /*freep=*/0),
        ZIP_FL_ENC_UTF_8);
    EXPECT_GE(index, 0);
    EXPECT_EQ(
        zip_set_file_compression(zip, static_cast<zip_uint64_t>(index),
                                 deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 9),
        0);
  }
  EXPECT_EQ(zip_close(zip), 0);
  return path;
}

}  // namespace agg
