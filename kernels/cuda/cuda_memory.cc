// The calls that allocate, wait, pin and copy. Memory that has run out is
// RESOURCE_EXHAUSTED, with the number of bytes.
#include "kernels/cuda/cuda_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/device_memory/device_stream.h"

namespace agg::cuda {

absl::StatusOr<DeviceMemory> AllocateDevice(int64_t num_bytes) {
  if (num_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot allocate ", num_bytes, " bytes"));
  }
  // Whole units of the kernels' asynchronous copies: of one's last bytes the
  // device reads no more than it is asked for, but compute-sanitizer's memcheck
  // takes it for all 16.
  const auto size =
      (static_cast<size_t>(std::max<int64_t>(num_bytes, 1)) + 15) & ~size_t{15};
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, size);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky; forget it
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot allocate ", num_bytes, " bytes of device memory; free are ",
        free_bytes, " of ", total_bytes));
  }
  if (absl::Status status = CudaStatus(error, "cudaMalloc", __FILE__, __LINE__);
      !status.ok())
    return status;
  DeviceMemory owner(static_cast<char*>(memory));
  const absl::Status cleared =
      ClearDevice(owner.get(), static_cast<int64_t>(size));
  if (!cleared.ok()) return cleared;
  return owner;
}

absl::Status ClearDevice(char* memory, int64_t num_bytes) {
  // On a stream of its own: rounds go on meanwhile, and are not waited for.
  absl::StatusOr<Stream> clearing = MakeStream();
  if (!clearing.ok()) return clearing.status();
  AGG_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(
      memory, 0, static_cast<size_t>(num_bytes), clearing->get()));
  AGG_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(clearing->get()));
  return absl::OkStatus();
}

absl::StatusOr<Stream> MakeStream() {
  cudaStream_t stream = nullptr;
  AGG_RETURN_IF_CUDA_ERROR(
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

namespace {

// `query` answers at once, `wait` when all is done.
template <class Query, class Wait>
cudaError_t AskThenWait(const Query& query, const Wait& wait) {
  for (int i = 0; i < kQuestionsBeforeSleep; ++i) {
    const cudaError_t error = query();
    if (error != cudaErrorNotReady) return error;
    cudaGetLastError();  // it is none, and must not spoil later calls
  }
  return wait();
}

}  // namespace

cudaError_t Await(cudaStream_t stream) {
  return AskThenWait([&] { return cudaStreamQuery(stream); },
                     [&] { return cudaStreamSynchronize(stream); });
}

cudaError_t Await(cudaEvent_t event) {
  return AskThenWait([&] { return cudaEventQuery(event); },
                     [&] { return cudaEventSynchronize(event); });
}

absl::StatusOr<Event> MakeEvent() {
  cudaEvent_t event = nullptr;
  AGG_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(
      &event, cudaEventDisableTiming | cudaEventBlockingSync));
  return Event(event);
}

namespace {

constexpr int64_t kHugePageBytes = int64_t{2} << 20;

absl::Status NoPinnedMemory(int64_t num_bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot allocate ", num_bytes, " bytes of pinned host memory"));
}

// Ends the pieces of the first `num_bytes`.
void Unregister(char* memory, int64_t num_bytes) {
  for (int64_t begin = 0; begin < num_bytes; begin += kPieceBytes) {
    cudaHostUnregister(memory + begin);
  }
}

// Whether kernels find registered memory at the host's address.
bool ServesKernels() {
  int device = 0, same_address = 0;
  if (cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&same_address,
                             cudaDevAttrCanUseHostPointerForRegisteredMem,
                             device) == cudaSuccess) {
    return same_address != 0;
  }
  cudaGetLastError();
  return false;
}

// Untouched memory, hence zeros; null if there is none.
char* Map(int64_t num_bytes) {
  void* const memory =
      mmap(nullptr, static_cast<size_t>(num_bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Advice only: fewer and larger pages are pinned sooner.
  if (num_bytes >= kHugePageBytes) {
    madvise(memory, static_cast<size_t>(num_bytes), MADV_HUGEPAGE);
  }
  return static_cast<char*>(memory);
}

// Null if registered memory does not serve, or cannot be registered. An error
// if there is no memory: the driver, asked for it in turn, may find fault with
// the size instead.
absl::StatusOr<PinnedMemory> MapPinned(int64_t num_bytes,
                                       const NumaNode& node) {
  if (!ServesKernels()) return nullptr;
  char* const memory = Map(num_bytes);
  if (memory == nullptr) return NoPinnedMemory(num_bytes);
  node.Prefer(memory, num_bytes);
  absl::StatusOr<RegisteredMemory> registered = RegisterHost(memory, num_bytes);
  if (!registered.ok()) {
    munmap(memory, static_cast<size_t>(num_bytes));
    return nullptr;
  }
  return PinnedMemory(registered->release(), FreePinned{num_bytes});
}

absl::StatusOr<PinnedMemory> HostAlloc(int64_t num_bytes) {
  const auto size = static_cast<size_t>(num_bytes);
  void* memory = nullptr;
  const cudaError_t error = cudaHostAlloc(&memory, size, cudaHostAllocDefault);
  // The size is all that may be wrong with the call.
  if (error == cudaErrorMemoryAllocation || error == cudaErrorInvalidValue) {
    cudaGetLastError();  // not sticky; forget it
    return NoPinnedMemory(num_bytes);
  }
  if (absl::Status status =
          CudaStatus(error, "cudaHostAlloc", __FILE__, __LINE__);
      !status.ok())
    return status;
  std::memset(memory, 0, size);
  return PinnedMemory(static_cast<char*>(memory), FreePinned());
}

// Bytes `span` of `from` to the same bytes of `to`, cut where pieces end.
absl::Status CopyPieces(const char* from, char* to, const ByteSpan& span,
                        cudaMemcpyKind kind, cudaStream_t stream) {
  for (int64_t begin = span.begin; begin < span.end;) {
    const int64_t end =
        std::min(span.end, (begin / kPieceBytes + 1) * kPieceBytes);
    AGG_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to + begin, from + begin,
                                             static_cast<size_t>(end - begin),
                                             kind, stream));
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace

void UnregisterHost::operator()(char* memory) const {
  Unregister(memory, num_bytes);
}

void FreePinned::operator()(char* memory) const {
  if (num_bytes == 0) {
    cudaFreeHost(memory);
    return;
  }
  Unregister(memory, num_bytes);
  munmap(memory, static_cast<size_t>(num_bytes));
}

absl::StatusOr<PinnedMemory> AllocatePinned(int64_t num_bytes,
                                            const NumaNode& node) {
  if (num_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot allocate ", num_bytes, " bytes"));
  }
  num_bytes = std::max<int64_t>(num_bytes, 1);
  absl::StatusOr<PinnedMemory> memory = MapPinned(num_bytes, node);
  if (!memory.ok() || *memory != nullptr) return memory;
  return HostAlloc(num_bytes);
}

absl::StatusOr<RegisteredMemory> RegisterHost(char* memory, int64_t num_bytes) {
  assert(num_bytes > 0);
  for (int64_t begin = 0; begin < num_bytes; begin += kPieceBytes) {
    const cudaError_t error = cudaHostRegister(
        memory + begin,
        static_cast<size_t>(std::min(kPieceBytes, num_bytes - begin)),
        cudaHostRegisterDefault);
    if (error == cudaSuccess) continue;
    cudaGetLastError();
    Unregister(memory, begin);
    if (error == cudaErrorMemoryAllocation) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "cannot pin ", num_bytes, " bytes of host memory for the device"));
    }
    return CudaStatus(error, "cudaHostRegister", __FILE__, __LINE__);
  }
  return RegisteredMemory(memory, UnregisterHost{num_bytes});
}

absl::Status CopyToDevice(const char* host, char* device, const ByteSpan& span,
                          cudaStream_t stream) {
  return CopyPieces(host, device, span, cudaMemcpyHostToDevice, stream);
}

absl::Status CopyToHost(const char* device, char* host, const ByteSpan& span,
                        cudaStream_t stream) {
  return CopyPieces(device, host, span, cudaMemcpyDeviceToHost, stream);
}

}  // namespace agg::cuda
