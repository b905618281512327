// Looks for the library in the loader's path, in CUDA's folder and in
// Python's packages, and declares by hand the functions that it uses.
#include "kernels/cuda/cublas_library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace agg::cuda {
namespace {

// What cublas_api.h declares, which is not needed to build: the same
// since cuBLAS 4 (_v2) and 8 (strided batches).
using Handle = void*;
using CreateFunction = int (*)(Handle*);
using DestroyFunction = int (*)(Handle);
using SetStreamFunction = int (*)(Handle, cudaStream_t);
using GemmFunction = int (*)(Handle, int, int, int, int, int, const double*,
                             const double*, int, long long, const double*, int,
                             long long, const double*, double*, int, long long,
                             int);
constexpr int kNoTranspose = 0;  // CUBLAS_OP_N
constexpr int kTranspose = 1;    // CUBLAS_OP_T

constexpr const char* kNames[] = {"libcublas.so.13", "libcublas.so.12",
                                  "libcublas.so.11"};

std::vector<std::string> Expand(const std::string& candidate) {
  if (candidate.find('*') == std::string::npos) return {candidate};
  std::vector<std::string> paths;
  glob_t found;
  if (glob(candidate.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
  }
  return paths;
}

// libcublas needs libcublasLt of its own folder, and finds it there if that
// one is loaded already.
void* OpenWithSibling(const std::string& path) {
  const size_t name = path.rfind("libcublas.so");
  if (name != std::string::npos) {
    std::string sibling = path;
    sibling.replace(name, 12, "libcublasLt.so");
    dlopen(sibling.c_str(), RTLD_LAZY | RTLD_LOCAL);  // stays loaded
  }
  return dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
}

template <class Function>
absl::StatusOr<Function> Find(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == nullptr) {
    return absl::NotFoundError(absl::StrCat("cuBLAS has no ", name));
  }
  return reinterpret_cast<Function>(symbol);
}

absl::Status CublasStatus(int status, absl::string_view call) {
  if (status == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cuBLAS: status ", status, " from ", call));
}

}  // namespace

std::vector<std::string> CublasCandidates(
    const std::function<const char*(const char*)>& env) {
  std::vector<std::string> folders = {""};
  if (const char* home = env("CUDA_HOME"); home != nullptr && *home != 0) {
    folders.push_back(absl::StrCat(home, "/lib64/"));
  }
  folders.push_back("/usr/local/cuda/lib64/");
  std::vector<std::string> packages;
  if (const char* path = env("PYTHONPATH"); path != nullptr) {
    for (absl::string_view entry : absl::StrSplit(path, ':')) {
      if (!entry.empty()) packages.emplace_back(entry);
    }
  }
  if (const char* root = env("VIRTUAL_ENV"); root != nullptr && *root != 0) {
    packages.push_back(absl::StrCat(root, "/lib/python3*/site-packages"));
  }
  if (const char* home = env("HOME"); home != nullptr && *home != 0) {
    packages.push_back(
        absl::StrCat(home, "/.local/lib/python3*/site-packages"));
  }
  packages.push_back("/usr/local/lib/python3*/dist-packages");
  packages.push_back("/usr/local/lib/python3*/site-packages");
  packages.push_back("/usr/lib/python3*/site-packages");
  for (const std::string& package : packages) {
    folders.push_back(absl::StrCat(package, "/nvidia/cublas/lib/"));
    folders.push_back(absl::StrCat(package, "/nvidia/cu1*/lib/"));
  }
  std::vector<std::string> candidates;
  // The newest one anywhere: an old one may not know the card.
  for (const char* name : kNames) {
    for (const std::string& folder : folders) {
      candidates.push_back(absl::StrCat(folder, name));
    }
  }
  return candidates;
}

absl::StatusOr<std::unique_ptr<CublasLibrary>> CublasLibrary::Open(
    const std::string& path) {
  std::vector<std::string> candidates = {path};
  if (path.empty()) {
    candidates = CublasCandidates(
        [](const char* name) -> const char* { return std::getenv(name); });
  }
  std::string first_error;
  for (const std::string& candidate : candidates) {
    for (const std::string& file : Expand(candidate)) {
      if (void* library = OpenWithSibling(file); library != nullptr) {
        return std::unique_ptr<CublasLibrary>(new CublasLibrary(library, file));
      }
      const char* const error = dlerror();
      if (first_error.empty() && error != nullptr) first_error = error;
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no cuBLAS in the loader's path, CUDA_HOME or Python's "
                   "nvidia-cublas package (",
                   first_error, ")"));
}

CublasLibrary::~CublasLibrary() {
  if (handle_ != nullptr) {
    const auto destroy = Find<DestroyFunction>(library_, "cublasDestroy_v2");
    if (destroy.ok()) (*destroy)(handle_);
  }
  // Never closed: its threads and exit handlers may still run.
}

absl::Status CublasLibrary::Start(cudaStream_t stream) {
  if (handle_ != nullptr) return absl::OkStatus();
  const auto create = Find<CreateFunction>(library_, "cublasCreate_v2");
  if (!create.ok()) return create.status();
  const auto set_stream =
      Find<SetStreamFunction>(library_, "cublasSetStream_v2");
  if (!set_stream.ok()) return set_stream.status();
  if (absl::Status status = CublasStatus((*create)(&handle_), "cublasCreate");
      !status.ok()) {
    handle_ = nullptr;
    return status;
  }
  return CublasStatus((*set_stream)(handle_, stream), "cublasSetStream");
}

absl::Status CublasLibrary::Gram(const BatchedGram& gram) {
  const auto gemm = Find<GemmFunction>(library_, "cublasDgemmStridedBatched");
  if (!gemm.ok()) return gemm.status();
  const double one = 1.0;
  const double zero = 0.0;
  // To cuBLAS, which counts down columns, a row of ours is a column.
  return CublasStatus(
      (*gemm)(handle_, kTranspose, kNoTranspose, gram.num_rows, gram.num_rows,
              gram.num_elements, &one, gram.a, gram.row_stride,
              gram.num_elements, gram.a, gram.row_stride, gram.num_elements,
              &zero, gram.c, gram.num_rows,
              static_cast<long long>(gram.num_rows) * gram.num_rows,
              gram.num_batches),
      "cublasDgemmStridedBatched");
}

}  // namespace agg::cuda
