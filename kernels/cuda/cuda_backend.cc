// The interface's calls, each with what has to come before it, and what a
// failure means, and memory. cuda_gram.cc and cuda_update.cc run
// kernels.
#include "kernels/cuda/cuda_backend.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/request_check.h"
#include "kernels/cuda/args_block.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_gram.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/cuda_update.h"
#include "kernels/cuda/gram_kernel.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/cuda/update_kernel.h"
#include "kernels/row_format.h"

namespace agg {
namespace {

// Brings to the device, before the first round, all that a backend launches:
// the driver may have to compile it first. `double_float`: plain Grams are
// those of LaunchGramDoubleFloat. INTERNAL: one of them cannot be loaded.
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
  if (!cuda::MayBeLost(status)) return status;
  return cuda::LostIf(cudaDeviceSynchronize(), status);
}

// Null where memory is not to be shared, or cannot be, which `description` says
// then.
std::unique_ptr<const cuda::DeviceSharing> StartSharing(
    const CudaOptions& options, std::string* description) {
  if (!options.share_device) return nullptr;
  auto sharing =
      cuda::DeviceSharing::Start(options.driver_path, options.device);
  if (sharing.ok()) return *std::move(sharing);
  absl::StrAppend(description,
                  "; no device rows: ", sharing.status().message());
  return nullptr;
}

// What a call comes to that the calling thread makes on the device.
template <class Call>
absl::Status OnDevice(int device, const Call& call) {
  const absl::Status bound = cuda::BindThread(device);
  return Diagnose(bound.ok() ? call() : bound);
}

}  // namespace

double CudaBackend::gram_products_at_once() const {
  return cuda::kGramProductsAtOnce;
}

absl::StatusOr<std::unique_ptr<Backend>> CudaBackend::Make(
    const CudaOptions& options) {
  if (absl::Status status = cuda::OpenDevice(options.device); !status.ok()) {
    return status;
  }
  const auto double_float =
      cuda::WantsDoubleFloat(options.device, options.gram);
  if (!double_float.ok()) return double_float.status();
  if (absl::Status status = LoadKernels(*double_float); !status.ok()) {
    return absl::IsInternal(status) ? cuda::WithVersions(status) : status;
  }
  absl::StatusOr<std::unique_ptr<cuda::CublasLibrary>> cublas =
      absl::NotFoundError("cuBLAS not wanted");
  if (options.use_cublas && !*double_float) {
    cublas = cuda::CublasLibrary::Open(options.cublas_path);
  }
  auto node = cuda::NodeNear(options.device, options.sysfs);
  absl::StatusOr<std::string> description = cuda::DescribeDevice(
      options.device, *node, *double_float, cublas, options.many_rows);
  if (!description.ok()) return description.status();
  absl::StatusOr<std::unique_ptr<cuda::CudaScratch>> scratch =
      cuda::CudaScratch::Make(*node);
  if (!scratch.ok()) return scratch.status();
  (*scratch)->double_float = *double_float;
  (*scratch)->many_rows = options.many_rows;
  if (cublas.ok()) (*scratch)->cublas = *std::move(cublas);
  auto copies = cuda::RowCopies::Make();
  if (!copies.ok()) return copies.status();
  std::unique_ptr<const cuda::DeviceSharing> sharing =
      StartSharing(options, &*description);
  return std::unique_ptr<Backend>(new CudaBackend(
      options.device, std::move(node), *std::move(description),
      std::move(sharing), *std::move(scratch), *std::move(copies)));
}

// Scratch that is destroyed must not be in use.
CudaBackend::~CudaBackend() {
  cuda::BindThread(device_).IgnoreError();
  cudaDeviceSynchronize();
}

void CudaBackend::RowLanded(const Buffer& row, DType dtype,
                            const ElementRange& range) {
  // Copies would be made all the same, and theirs is the error to be kept.
  cuda::BindThread(device_).IgnoreError();
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

// --- The interface: what is above, diagnosed ---------------------------------

absl::Status CudaBackend::Load(const OptimizerOptions& optimizer,
                               const Buffer& snapshot, Buffer* master,
                               Buffer* state0, Buffer* state1,
                               Buffer* narrowed_snapshot,
                               DType narrowed_dtype) {
  return OnDevice(device_, [&] {
    return ComputeLoad(optimizer, snapshot, master, state0, state1,
                       narrowed_snapshot, narrowed_dtype);
  });
}

absl::Status CudaBackend::Read(const Buffer& state, absl::Span<float> values) {
  const absl::Status status = CheckStateCopy(&state, values.size());
  if (!status.ok()) return status;
  return OnDevice(
      device_, [&] { return cuda::ReadState(state, values, scratch_.get()); });
}

absl::Status CudaBackend::Write(absl::Span<const float> values, Buffer* state) {
  const absl::Status status = CheckStateCopy(state, values.size());
  if (!status.ok()) return status;
  return OnDevice(
      device_, [&] { return cuda::WriteState(values, state, scratch_.get()); });
}

absl::Status CudaBackend::Gram(const GramRequest& request) {
  return OnDevice(device_, [&] { return ComputeGram(request); });
}

absl::Status CudaBackend::Update(const UpdateRequest& request) {
  return OnDevice(device_, [&] { return ComputeUpdate(request); });
}

absl::Status CudaBackend::Combine(const UpdateRequest& request) {
  return OnDevice(device_, [&] { return ComputeCombine(request); });
}

absl::Status CudaBackend::Step(const UpdateRequest& request) {
  return OnDevice(device_, [&] { return ComputeStep(request); });
}

absl::Status CudaBackend::FinishSnapshot(const Buffer& snapshot) {
  return OnDevice(device_,
                  [&] { return scratch_->snapshots->Finish(snapshot); });
}

absl::Status CudaBackend::Norms(const UpdateRequest& request,
                                absl::Span<RangeNorms> norms) {
  return OnDevice(device_, [&] { return ComputeNorms(request, norms); });
}

// Buffers, and what they and computing take. Apart from the calls that compute,
// since a round is under way here, which nothing may wait for.
namespace {

// What a failed Allocate or Adopt means. It has given the device nothing to do
// that goes on, so the device is asked, by one of its streams, and what a round
// has given it is not waited for.
absl::Status DiagnoseAllocation(const absl::Status& status,
                                cudaStream_t stream) {
  if (!cuda::MayBeLost(status)) return status;
  const cudaError_t error = cudaStreamQuery(stream);
  return cuda::LostIf(error == cudaErrorNotReady ? cudaSuccess : error, status);
}

}  // namespace

absl::Status CudaBackend::PrepareForRows() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (copies_->num_rows() <= scratch_->many_rows) return absl::OkStatus();
  const absl::Status status = scratch_->PrepareManyRows();
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  // A cuBLAS that does not multiply is as good as none.
  cuda::Complain(std::string(status.message()) + "; hand kernels instead");
  scratch_->cublas = nullptr;
  uses_cublas_ = false;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Prepared(
    BufferUse use, absl::StatusOr<std::unique_ptr<cuda::CudaBuffer>> buffer) {
  if (!buffer.ok())
    return DiagnoseAllocation(buffer.status(), scratch_->compute.get());
  if (use == BufferUse::kSnapshot) (*buffer)->NoteCopies(scratch_->snapshots);
  if (use == BufferUse::kRow) {
    const absl::Status status = PrepareForRows();
    if (!status.ok())
      return DiagnoseAllocation(status, scratch_->compute.get());
  }
  return std::unique_ptr<Buffer>(*std::move(buffer));
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Allocate(
    BufferUse use, int64_t num_bytes) {
  const absl::Status bound = cuda::BindThread(device_);
  if (!bound.ok()) return DiagnoseAllocation(bound, scratch_->compute.get());
  return Prepared(use, cuda::CudaBuffer::Allocate(use, num_bytes, copies_.get(),
                                                  *node_, sharing_.get()));
}

absl::StatusOr<std::unique_ptr<Buffer>> CudaBackend::Adopt(
    BufferUse use, char* host, int64_t num_bytes, absl::Status* registered) {
  const absl::Status bound = cuda::BindThread(device_);
  if (!bound.ok()) return DiagnoseAllocation(bound, scratch_->compute.get());
  auto buffer = Prepared(
      use, cuda::CudaBuffer::Adopt(use, host, num_bytes, copies_.get(), *node_,
                                   sharing_.get(), registered));
  *registered = DiagnoseAllocation(*registered, scratch_->compute.get());
  if (absl::IsUnavailable(*registered)) return *registered;
  return buffer;
}

absl::Status CudaBackend::AwaitRows() {
  // As for RowLanded.
  cuda::BindThread(device_).IgnoreError();
  absl::Status status = copies_->Await();
  // What failed has been copied again: whether that failed, too, counts.
  if (!status.ok()) status = copies_->Await();
  return DiagnoseAllocation(status, scratch_->compute.get());
}

MemoryNeeds CudaBackend::memory_needs(int64_t num_rows) const {
  MemoryNeeds needs;
  needs.scratch_bytes = cuda::CudaScratch::HostBytes();
  needs.on_device = true;
  needs.device_scratch_bytes =
      scratch_->DeviceBytes(uses_cublas_ ? num_rows : 0);
  if (sharing_ != nullptr) needs.device_granularity = sharing_->granularity();
  return needs;
}

DeviceMemoryUse CudaBackend::device_memory_use() const {
  size_t free_bytes = 0, total_bytes = 0;
  if (!cuda::BindThread(device_).ok() ||
      cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  return {static_cast<int64_t>(total_bytes),
          static_cast<int64_t>(total_bytes - free_bytes)};
}

}  // namespace agg
