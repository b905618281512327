#include "kernels/cuda/cuda_backend.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/cpu/request_check.h"
#include "kernels/cuda/cuda_buffer.h"
#include "kernels/cuda/cuda_gram.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/cuda_update.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_tile.h"
#include "kernels/cuda/update_kernel.h"

namespace agg {
namespace {

constexpr int kDevice = 0;
constexpr int kLeastMajor = 8;  // what the kernels are compiled for
// fp32:fp64 from which 13 operations on floats are less than one on doubles by
// enough to matter: consumer cards have 32 or 64, data center cards 2.
constexpr int kSlowDoubleRatio = 32;

absl::StatusOr<int> Attribute(cudaDeviceAttr attribute) {
  int value = 0;
  AGG_RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&value, attribute, kDevice));
  return value;
}

absl::Status OpenDevice() {
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error != cudaSuccess || num_devices == 0) {
    cudaGetLastError();  // a missing driver must not spoil later calls
    return absl::UnavailableError(absl::StrCat(
        "no CUDA device: ",
        error == cudaSuccess ? "none visible" : cudaGetErrorString(error)));
  }
  // Waiting threads sleep: the cores have a network to serve. Too late, which
  // is no harm, if this process has used the device before.
  if (cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync) != cudaSuccess) {
    cudaGetLastError();
  }
  AGG_RETURN_IF_CUDA_ERROR(cudaSetDevice(kDevice));
  const absl::StatusOr<int> major =
      Attribute(cudaDevAttrComputeCapabilityMajor);
  if (!major.ok()) return major.status();
  if (*major < kLeastMajor) {
    return absl::UnavailableError(
        absl::StrCat("no CUDA device: compute capability ", *major,
                     ".x is less than ", kLeastMajor, ".0"));
  }
  return absl::OkStatus();
}

absl::Status LoadKernels(bool double_float) {
  AGG_RETURN_IF_CUDA_ERROR(double_float ? cuda::LoadGramDoubleFloat()
                                        : cuda::LoadGram());
  AGG_RETURN_IF_CUDA_ERROR(cuda::LoadGramPairs());
  AGG_RETURN_IF_CUDA_ERROR(cuda::LoadTiles());
  AGG_RETURN_IF_CUDA_ERROR(cuda::LoadUpdate());
  return absl::OkStatus();
}

absl::StatusOr<bool> WantsDoubleFloat(GramArithmetic gram) {
  if (gram != GramArithmetic::kByDevice) {
    return gram == GramArithmetic::kDoubleFloat;
  }
  const absl::StatusOr<int> ratio =
      Attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio);
  if (!ratio.ok()) return ratio.status();
  return *ratio >= kSlowDoubleRatio;
}

absl::StatusOr<std::string> Describe(
    bool double_float,
    const absl::StatusOr<std::unique_ptr<cuda::CublasLibrary>>& cublas) {
  cudaDeviceProp device;
  AGG_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&device, kDevice));
  int driver = 0;
  AGG_RETURN_IF_CUDA_ERROR(cudaDriverGetVersion(&driver));
  const absl::StatusOr<int> ratio =
      Attribute(cudaDevAttrSingleToDoublePrecisionPerfRatio);
  if (!ratio.ok()) return ratio.status();
  return absl::StrFormat(
      "cuda, %s (compute %d.%d, %d multiprocessors, %.1f GiB, fp32:fp64 "
      "%d:1), driver for CUDA %d.%d; Gram in %s; more than %d rows: %s",
      device.name, device.major, device.minor, device.multiProcessorCount,
      static_cast<double>(device.totalGlobalMem) / (int64_t{1} << 30), *ratio,
      driver / 1000, driver % 1000 / 10,
      double_float ? "pairs of floats" : "double", cuda::kManyRows,
      cublas.ok() ? absl::StrCat("cuBLAS of ", (*cublas)->path())
                  : absl::StrCat("hand kernels, ", cublas.status().message()));
}

// What a failed call means: whether the device still works is asked by waiting
// for it, which also ends what the call has started.
absl::Status Diagnose(const absl::Status& status) {
  if (!absl::IsInternal(status)) return status;
  const cudaError_t error = cudaDeviceSynchronize();
  cudaGetLastError();  // so that the next call does not report this one's
  if (error == cudaSuccess) return status;
  return absl::UnavailableError(
      absl::StrCat("the CUDA device is lost: ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CudaBackend::Make(
    const CudaOptions& options) {
  if (absl::Status status = OpenDevice(); !status.ok()) return status;
  const absl::StatusOr<bool> double_float = WantsDoubleFloat(options.gram);
  if (!double_float.ok()) return double_float.status();
  if (absl::Status status = LoadKernels(*double_float); !status.ok()) {
    return status;
  }
  absl::StatusOr<std::unique_ptr<cuda::CublasLibrary>> cublas =
      absl::NotFoundError("cuBLAS not wanted");
  if (options.use_cublas && !*double_float) {
    cublas = cuda::CublasLibrary::Open(options.cublas_path);
  }
  absl::StatusOr<std::string> description = Describe(*double_float, cublas);
  if (!description.ok()) return description.status();
  absl::StatusOr<std::unique_ptr<cuda::CudaScratch>> scratch =
      cuda::CudaScratch::Make();
  if (!scratch.ok()) return scratch.status();
  (*scratch)->double_float = *double_float;
  if (cublas.ok()) (*scratch)->cublas = *std::move(cublas);
  absl::StatusOr<std::unique_ptr<cuda::RowCopies>> copies =
      cuda::RowCopies::Make();
  if (!copies.ok()) return copies.status();
  return std::unique_ptr<Backend>(new CudaBackend(
      *std::move(description), *std::move(scratch), *std::move(copies)));
}

// Scratch that is destroyed must not be in use.
CudaBackend::~CudaBackend() { cudaDeviceSynchronize(); }

absl::Status CudaBackend::PrepareForRows() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (copies_->num_rows() <= cuda::kManyRows) return absl::OkStatus();
  const absl::Status status = scratch_->PrepareManyRows();
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  // A cuBLAS that does not multiply is as good as none.
  std::fprintf(stderr, "%s; hand kernels instead\n",
               std::string(status.message()).c_str());
  scratch_->cublas = nullptr;
  uses_cublas_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::AllocateBuffer(
    BufferUse use, int64_t num_bytes) {
  absl::StatusOr<std::unique_ptr<cuda::CudaBuffer>> buffer =
      cuda::CudaBuffer::Allocate(use, num_bytes, copies_.get());
  if (!buffer.ok()) return buffer.status();
  if (use == BufferUse::kRow) {
    if (absl::Status status = PrepareForRows(); !status.ok()) return status;
  }
  return std::unique_ptr<Buffer>(*std::move(buffer));
}

void CudaBackend::RowLanded(const Buffer& row, DType dtype,
                            const ElementRange& range) {
  const int64_t element_bytes = DTypeBytes(dtype);
  copies_->Land(row.host(), cuda::DeviceOf(&row),
                {range.begin * element_bytes,
                 (range.begin + range.num_elements) * element_bytes},
                kLayoutAlignment * element_bytes);
}

absl::StatusOr<uint16_t*> CudaBackend::NarrowedMirror(
    const Buffer* narrowed_snapshot) {
  if (narrowed_snapshot == nullptr) return nullptr;
  if (narrowed_snapshot->num_bytes() > narrowed_bytes_) {
    narrowed_ = nullptr;
    narrowed_bytes_ = 0;
    absl::StatusOr<cuda::DeviceMemory> memory =
        cuda::AllocateDevice(narrowed_snapshot->num_bytes());
    if (!memory.ok()) return memory.status();
    narrowed_ = *std::move(memory);
    narrowed_bytes_ = narrowed_snapshot->num_bytes();
  }
  return reinterpret_cast<uint16_t*>(narrowed_.get());
}

absl::Status CudaBackend::ComputeLoad(const OptimizerOptions& optimizer,
                                      const Buffer& snapshot, Buffer* master,
                                      Buffer* state0, Buffer* state1,
                                      Buffer* narrowed_snapshot,
                                      DType narrowed_dtype) {
  const absl::Status status =
      CheckLoad(optimizer, snapshot, master, state0, state1, narrowed_snapshot,
                narrowed_dtype);
  if (!status.ok()) return status;
  const absl::StatusOr<uint16_t*> narrowed = NarrowedMirror(narrowed_snapshot);
  if (!narrowed.ok()) return narrowed.status();
  return cuda::ComputeLoad(optimizer, snapshot, master, state0, state1,
                           narrowed_snapshot, narrowed_dtype, scratch_.get(),
                           *narrowed);
}

absl::Status CudaBackend::WaitForAllRows() {
  const absl::Status status = copies_->WaitForAll(scratch_->compute.get());
  // What failed, perhaps of a row that is not in this round, has been copied
  // again: whether that failed, too, counts.
  return status.ok() ? status : copies_->WaitForAll(scratch_->compute.get());
}

absl::Status CudaBackend::WaitForRows(const GramRequest& request) {
  std::vector<const char*> hosts;
  for (const Buffer* row : request.rows) hosts.push_back(row->host());
  const int64_t element_bytes = DTypeBytes(request.dtype);
  std::vector<cuda::ByteSpan> spans;
  for (const ElementRange& range : request.ranges) {
    spans.push_back({range.begin * element_bytes,
                     (range.begin + range.num_elements) * element_bytes});
  }
  return copies_->WaitFor(scratch_->compute.get(), hosts, spans);
}

absl::Status CudaBackend::ComputeGram(const GramRequest& request) {
  absl::Status status = CheckGramRequest(request);
  if (status.ok()) status = WaitForRows(request);
  if (status.ok()) status = cuda::ComputeGram(request, scratch_.get());
  return status;
}

absl::Status CudaBackend::ComputeUpdate(const UpdateRequest& request) {
  absl::Status status = CheckUpdateRequest(request, /*stores=*/true);
  if (!status.ok()) return status;
  const absl::StatusOr<uint16_t*> narrowed =
      NarrowedMirror(request.narrowed_snapshot);
  if (!narrowed.ok()) return narrowed.status();
  status = WaitForAllRows();
  if (!status.ok()) return status;
  return cuda::ComputeUpdate(request, scratch_.get(), *narrowed);
}

absl::Status CudaBackend::ComputeNorms(const UpdateRequest& request,
                                       absl::Span<RangeNorms> norms) {
  if (norms.size() != request.ranges.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel request: ", norms.size(), " norms for ",
                     request.ranges.size(), " ranges"));
  }
  absl::Status status = CheckUpdateRequest(request, /*stores=*/false);
  if (status.ok()) status = WaitForAllRows();
  if (!status.ok()) return status;
  return cuda::ComputeNorms(request, scratch_.get(), norms);
}

MemoryNeeds CudaBackend::memory_needs(int64_t num_rows) const {
  MemoryNeeds needs;
  needs.scratch_bytes = cuda::CudaScratch::HostBytes();
  needs.on_device = true;
  needs.device_scratch_bytes =
      cuda::CudaScratch::DeviceBytes(uses_cublas_ ? num_rows : 0);
  return needs;
}

DeviceMemoryUse CudaBackend::device_memory_use() const {
  size_t free_bytes = 0, total_bytes = 0;
  if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  return {static_cast<int64_t>(total_bytes),
          static_cast<int64_t>(total_bytes - free_bytes)};
}

// --- The interface: what is above, diagnosed ---------------------------------

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Allocate(
    BufferUse use, int64_t num_bytes) {
  absl::StatusOr<std::unique_ptr<Buffer>> buffer =
      AllocateBuffer(use, num_bytes);
  if (!buffer.ok()) return Diagnose(buffer.status());
  return buffer;
}

absl::Status CudaBackend::Load(const OptimizerOptions& optimizer,
                               const Buffer& snapshot, Buffer* master,
                               Buffer* state0, Buffer* state1,
                               Buffer* narrowed_snapshot,
                               DType narrowed_dtype) {
  return Diagnose(ComputeLoad(optimizer, snapshot, master, state0, state1,
                              narrowed_snapshot, narrowed_dtype));
}

absl::Status CudaBackend::Gram(const GramRequest& request) {
  return Diagnose(ComputeGram(request));
}

absl::Status CudaBackend::Update(const UpdateRequest& request) {
  return Diagnose(ComputeUpdate(request));
}

absl::Status CudaBackend::Norms(const UpdateRequest& request,
                                absl::Span<RangeNorms> norms) {
  return Diagnose(ComputeNorms(request, norms));
}

}  // namespace agg
