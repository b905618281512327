// The interface's calls, each with what has to come before it, and what a
// failure means. cuda_gram.cc, cuda_update.cc and cuda_state.cc run kernels.
#include "kernels/cuda/cuda_backend.h"

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/request_check.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_gram.h"
#include "kernels/cuda/cuda_state.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/cuda_update.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/gram_tile.h"
#include "kernels/cuda/update_kernel.h"
#include "kernels/row_format.h"

namespace agg {
namespace {

absl::Status LoadKernels(bool double_float) {
  AGG_RETURN_IF_CUDA_ERROR(double_float ? cuda::LoadGramDoubleFloat()
                                        : cuda::LoadGram());
  AGG_RETURN_IF_CUDA_ERROR(cuda::LoadGramPairs());
  AGG_RETURN_IF_CUDA_ERROR(cuda::LoadGramInt8());
  AGG_RETURN_IF_CUDA_ERROR(cuda::LoadTiles());
  AGG_RETURN_IF_CUDA_ERROR(cuda::LoadUpdate());
  return absl::OkStatus();
}

// The bytes of a row that have the range's elements, and its scales.
std::vector<cuda::ByteSpan> SpansOf(DType dtype, int64_t row_bytes,
                                    const ElementRange& range) {
  const int64_t element_bytes = DTypeBytes(dtype);
  std::vector<cuda::ByteSpan> spans = {
      {range.begin * element_bytes,
       (range.begin + range.num_elements) * element_bytes}};
  if (dtype == DType::kI8) {
    const int64_t scales = ScaleOffset(row_bytes, range.begin);
    spans.push_back({scales, scales + ScaleBytes(dtype, range.num_elements)});
  }
  return spans;
}

// What a failed call means: whether the device still works is asked by waiting
// for it, which also ends what the call has started, and still reads arguments.
absl::Status Diagnose(const absl::Status& status) {
  if (!absl::IsInternal(status) && !absl::IsResourceExhausted(status))
    return status;
  const cudaError_t error = cudaDeviceSynchronize();
  cudaGetLastError();  // so that the next call does not report this one's
  if (error == cudaSuccess) return status;
  return absl::UnavailableError(
      absl::StrCat("the CUDA device is lost: ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CudaBackend::Make(
    const CudaOptions& options) {
  if (absl::Status status = cuda::OpenDevice(); !status.ok()) return status;
  const auto double_float = cuda::WantsDoubleFloat(options.gram);
  if (!double_float.ok()) return double_float.status();
  if (absl::Status status = LoadKernels(*double_float); !status.ok()) {
    return absl::IsInternal(status) ? cuda::WithVersions(status) : status;
  }
  absl::StatusOr<std::unique_ptr<cuda::CublasLibrary>> cublas =
      absl::NotFoundError("cuBLAS not wanted");
  if (options.use_cublas && !*double_float) {
    cublas = cuda::CublasLibrary::Open(options.cublas_path);
  }
  absl::StatusOr<std::string> description =
      cuda::DescribeDevice(*double_float, cublas, options.many_rows);
  if (!description.ok()) return description.status();
  absl::StatusOr<std::unique_ptr<cuda::CudaScratch>> scratch =
      cuda::CudaScratch::Make();
  if (!scratch.ok()) return scratch.status();
  (*scratch)->double_float = *double_float;
  (*scratch)->many_rows = options.many_rows;
  if (cublas.ok()) (*scratch)->cublas = *std::move(cublas);
  auto copies = cuda::RowCopies::Make();
  if (!copies.ok()) return copies.status();
  return std::unique_ptr<Backend>(new CudaBackend(
      *std::move(description), *std::move(scratch), *std::move(copies)));
}

// Scratch that is destroyed must not be in use.
CudaBackend::~CudaBackend() { cudaDeviceSynchronize(); }

absl::Status CudaBackend::PrepareForRows() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (copies_->num_rows() <= scratch_->many_rows) return absl::OkStatus();
  const absl::Status status = scratch_->PrepareManyRows();
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  // A cuBLAS that does not multiply is as good as none.
  std::fprintf(stderr, "%s; hand kernels instead\n",
               std::string(status.message()).c_str());
  scratch_->cublas = nullptr;
  uses_cublas_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Prepared(
    BufferUse use, absl::StatusOr<std::unique_ptr<cuda::CudaBuffer>> buffer) {
  if (!buffer.ok()) return Diagnose(buffer.status());
  if (use == BufferUse::kRow) {
    const absl::Status status = PrepareForRows();
    if (!status.ok()) return Diagnose(status);
  }
  return std::unique_ptr<Buffer>(*std::move(buffer));
}

void CudaBackend::RowLanded(const Buffer& row, DType dtype,
                            const ElementRange& range) {
  for (const cuda::ByteSpan& span : SpansOf(dtype, row.num_bytes(), range)) {
    copies_->Land(row.host(), cuda::DeviceOf(&row), span,
                  LayoutAlignment(dtype) * DTypeBytes(dtype));
  }
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
  std::vector<cuda::ByteSpan> spans;
  for (const ElementRange& range : request.ranges) {
    for (const cuda::ByteSpan& span :
         SpansOf(request.dtype, request.rows[0]->num_bytes(), range)) {
      spans.push_back(span);
    }
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
  absl::Status status = CheckUpdateRequest(request);
  if (!status.ok()) return status;
  const absl::StatusOr<uint16_t*> narrowed =
      NarrowedMirror(request.narrowed_snapshot);
  if (!narrowed.ok()) return narrowed.status();
  status = WaitForAllRows();
  if (!status.ok()) return status;
  return cuda::ComputeUpdate(request, scratch_.get(), *narrowed);
}

absl::Status CudaBackend::ComputeCombine(const UpdateRequest& request) {
  absl::Status status = CheckCombineRequest(request);
  if (status.ok()) status = WaitForAllRows();
  if (!status.ok()) return status;
  return cuda::ComputeCombine(request, scratch_.get());
}

absl::Status CudaBackend::ComputeStep(const UpdateRequest& request) {
  const absl::Status status = CheckStepRequest(request);
  if (!status.ok()) return status;
  const absl::StatusOr<uint16_t*> narrowed =
      NarrowedMirror(request.narrowed_snapshot);
  if (!narrowed.ok()) return narrowed.status();
  return cuda::ComputeStep(request, scratch_.get(), *narrowed);
}

absl::Status CudaBackend::ComputeNorms(const UpdateRequest& request,
                                       absl::Span<RangeNorms> norms) {
  if (norms.size() != request.ranges.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel request: ", norms.size(), " norms for ",
                     request.ranges.size(), " ranges"));
  }
  absl::Status status = CheckNormsRequest(request);
  if (status.ok()) status = WaitForAllRows();
  if (!status.ok()) return status;
  return cuda::ComputeNorms(request, scratch_.get(), norms);
}

MemoryNeeds CudaBackend::memory_needs(int64_t num_rows) const {
  MemoryNeeds needs;
  needs.scratch_bytes = cuda::CudaScratch::HostBytes();
  needs.on_device = true;
  needs.device_scratch_bytes =
      scratch_->DeviceBytes(uses_cublas_ ? num_rows : 0);
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
  return Prepared(use,
                  cuda::CudaBuffer::Allocate(use, num_bytes, copies_.get()));
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Adopt(
    BufferUse use, char* host, int64_t num_bytes, absl::Status* registered) {
  auto buffer = Prepared(
      use,
      cuda::CudaBuffer::Adopt(use, host, num_bytes, copies_.get(), registered));
  *registered = Diagnose(*registered);
  if (absl::IsUnavailable(*registered)) return *registered;
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

absl::Status CudaBackend::Read(const Buffer& state, absl::Span<float> values) {
  const absl::Status status = CheckStateCopy(&state, values.size());
  if (!status.ok()) return status;
  return Diagnose(cuda::ReadState(state, values, scratch_.get()));
}

absl::Status CudaBackend::Write(absl::Span<const float> values, Buffer* state) {
  const absl::Status status = CheckStateCopy(state, values.size());
  if (!status.ok()) return status;
  return Diagnose(cuda::WriteState(values, state, scratch_.get()));
}

absl::Status CudaBackend::Gram(const GramRequest& request) {
  return Diagnose(ComputeGram(request));
}

absl::Status CudaBackend::Update(const UpdateRequest& request) {
  return Diagnose(ComputeUpdate(request));
}

absl::Status CudaBackend::Combine(const UpdateRequest& request) {
  return Diagnose(ComputeCombine(request));
}

absl::Status CudaBackend::Step(const UpdateRequest& request) {
  return Diagnose(ComputeStep(request));
}

absl::Status CudaBackend::Norms(const UpdateRequest& request,
                                absl::Span<RangeNorms> norms) {
  return Diagnose(ComputeNorms(request, norms));
}

}  // namespace agg
