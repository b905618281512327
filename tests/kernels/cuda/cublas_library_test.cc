#include "kernels/cuda/cublas_library.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg::cuda {
namespace {

using testing::HasSubstr;

std::vector<std::string> CandidatesWith(
    const std::map<std::string, std::string>& variables) {
  return CublasCandidates([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(CublasCandidatesTest, TheNewestComesFirstAndOfThoseTheLoadersPath) {
  const std::vector<std::string> candidates =
      CandidatesWith({{"CUDA_HOME", "/opt/cuda"}});
  ASSERT_GE(candidates.size(), 6u);
  EXPECT_EQ(candidates[0], "libcublas.so.13");
  EXPECT_EQ(candidates[1], "/opt/cuda/lib64/libcublas.so.13");
  const size_t third = candidates.size() / 3;
  EXPECT_EQ(candidates[third], "libcublas.so.12");
  EXPECT_EQ(candidates[2 * third], "libcublas.so.11");
}

TEST(CublasCandidatesTest, LooksIntoPythonsPackages) {
  const std::vector<std::string> candidates = CandidatesWith(
      {{"VIRTUAL_ENV", "/venv"}, {"PYTHONPATH", "/a::/b"}, {"HOME", "/h"}});
  EXPECT_THAT(candidates,
              testing::Contains("/a/nvidia/cublas/lib/libcublas.so.12"));
  EXPECT_THAT(candidates,
              testing::Contains("/b/nvidia/cu1*/lib/libcublas.so.13"));
  EXPECT_THAT(candidates,
              testing::Contains("/venv/lib/python3*/site-packages/nvidia/"
                                "cublas/lib/libcublas.so.12"));
  for (const std::string& candidate : candidates) {
    EXPECT_THAT(candidate, HasSubstr("libcublas.so."));
  }
}

TEST(CublasLibraryTest, AMissingFileIsNotFoundAndSaysWhy) {
  const auto library = CublasLibrary::Open("/nowhere/libcublas.so.13");
  EXPECT_EQ(library.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(library.status().message()),
              HasSubstr("/nowhere/libcublas.so.13"));
}

}  // namespace
}  // namespace agg::cuda
