// Apart from the backend because a host without a usable device gets its
// answer, with the reason, from here.
#include "kernels/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cuda/cuda_scratch.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/driver_need.h"

namespace agg::cuda {
namespace {

constexpr int kLeastMajor = 8;  // what the kernels are compiled for
// fp32:fp64 from which 13 operations on floats are less than one on doubles by
// enough to matter: consumer cards have 32 or 64, data center cards 2.
constexpr int kSlowDoubleRatio = 32;

absl::StatusOr<int> Attribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  AGG_RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace

absl::Status WithVersions(const absl::Status& error) {
  int runtime = 0, driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess ||
      cudaDriverGetVersion(&driver) != cudaSuccess) {
    cudaGetLastError();
    return error;
  }
  return absl::Status(error.code(), absl::StrCat(error.message(), "; ",
                                                 DriverNeed(runtime, driver)));
}

absl::Status OpenDevice(int device) {
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error != cudaSuccess || num_devices == 0) {
    cudaGetLastError();  // a missing driver must not spoil later calls
    return WithVersions(absl::UnavailableError(absl::StrCat(
        "no CUDA device: ",
        error == cudaSuccess ? "none visible" : cudaGetErrorString(error))));
  }
  if (device < 0 || device >= num_devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("device is ", device, "; allowed: 0 to ", num_devices - 1,
                     ", of those that CUDA_VISIBLE_DEVICES leaves"));
  }
  if (absl::Status status = BindThread(device); !status.ok()) return status;
  // Waiting threads sleep: the cores have a network to serve. Of this device:
  // before it is the thread's, the flags were the first one's, which would be
  // taken into use for them. Too late, with an old runtime, if this process has
  // used the device before, which is no harm.
  if (cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess) {
    cudaGetLastError();
  }
  const absl::StatusOr<int> major =
      Attribute(cudaDevAttrComputeCapabilityMajor, device);
  if (!major.ok()) return major.status();
  if (*major < kLeastMajor) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA device: compute capability ", *major,
                     ".x is less than ", kLeastMajor, ".0"));
  }
  return absl::OkStatus();
}

absl::Status BindThread(int device) {
  AGG_RETURN_IF_CUDA_ERROR(cudaSetDevice(device));
  return absl::OkStatus();
}

absl::StatusOr<bool> WantsDoubleFloat(int device, GramArithmetic gram) {
  if (gram != GramArithmetic::kByDevice) {
    return gram == GramArithmetic::kDoubleFloat;
  }
  const absl::StatusOr<int> ratio =
      Attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio, device);
  if (!ratio.ok()) return ratio.status();
  return *ratio >= kSlowDoubleRatio;
}

absl::StatusOr<std::string> DescribeDevice(
    int device, bool double_float,
    const absl::StatusOr<std::unique_ptr<CublasLibrary>>& cublas) {
  cudaDeviceProp properties;
  AGG_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, device));
  int runtime = 0, driver = 0;
  AGG_RETURN_IF_CUDA_ERROR(cudaRuntimeGetVersion(&runtime));
  AGG_RETURN_IF_CUDA_ERROR(cudaDriverGetVersion(&driver));
  const absl::StatusOr<int> ratio =
      Attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio, device);
  if (!ratio.ok()) return ratio.status();
  return absl::StrFormat(
      "cuda, device %d, %s (compute %d.%d, %d multiprocessors, %.1f GiB, "
      "fp32:fp64 "
      "%d:1), CUDA %d.%d with a driver for %d.%d; Gram in %s; more than %d "
      "rows: %s",
      device, properties.name, properties.major, properties.minor,
      properties.multiProcessorCount,
      static_cast<double>(properties.totalGlobalMem) / (int64_t{1} << 30),
      *ratio, runtime / 1000, runtime % 1000 / 10, driver / 1000,
      driver % 1000 / 10, double_float ? "pairs of floats" : "double",
      kManyRows,
      cublas.ok() ? absl::StrCat("cuBLAS of ", (*cublas)->path())
                  : absl::StrCat("hand kernels, ", cublas.status().message()));
}

}  // namespace agg::cuda
