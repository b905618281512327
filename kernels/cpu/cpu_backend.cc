// Checks each request, then hands it to the loops of gram.h and update.h;
// only Load and the memory are done here.
#include "kernels/cpu/cpu_backend.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/gram.h"
#include "kernels/cpu/gram_kernel.h"
#include "kernels/cpu/request_check.h"
#include "kernels/cpu/update.h"
#include "kernels/cpu/update_kernel.h"
#include "kernels/optimizer_step.h"

namespace agg {

// Asks the kernel for huge pages and touches them at once, so that no round
// pays for page faults.

namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// A zero-filled private mapping aligned to huge pages, or null.
char* MapHugePages(int64_t mapped_bytes) {
  const int64_t reserved_bytes = mapped_bytes + kHugePageBytes;
  void* const reserved =
      mmap(nullptr, static_cast<size_t>(reserved_bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(reserved);
  const int64_t address = reinterpret_cast<intptr_t>(begin);
  const int64_t head = RoundUp(address, kHugePageBytes) - address;
  const int64_t tail = reserved_bytes - head - mapped_bytes;
  if (head > 0) munmap(begin, static_cast<size_t>(head));
  if (tail > 0) {
    munmap(begin + head + mapped_bytes, static_cast<size_t>(tail));
  }
  // Advice only: without huge pages everything works, slower.
  madvise(begin + head, static_cast<size_t>(mapped_bytes), MADV_HUGEPAGE);
  // Pages are made when memory is planned (Join), not in the first rounds,
  // which took up to a second more for 100 MB.
  madvise(begin + head, static_cast<size_t>(mapped_bytes), MADV_POPULATE_WRITE);
  return begin + head;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> CpuBuffer::Allocate(int64_t num_bytes) {
  if (num_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot allocate ", num_bytes, " bytes"));
  }
  char* data = nullptr;
  int64_t mapped_bytes = 0;
  if (num_bytes > std::numeric_limits<int64_t>::max() / 2) {
    // No such address range.
  } else if (num_bytes >= kHugePageBytes) {
    mapped_bytes = RoundUp(num_bytes, kHugePageBytes);
    data = MapHugePages(mapped_bytes);
  } else {
    const int64_t padded_bytes =
        std::max(kAlignment, RoundUp(num_bytes, kAlignment));
    data = static_cast<char*>(
        std::aligned_alloc(kAlignment, static_cast<size_t>(padded_bytes)));
    if (data != nullptr) {
      std::memset(data, 0, static_cast<size_t>(padded_bytes));
    }
  }
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", num_bytes, " bytes of host memory"));
  }
  return std::unique_ptr<Buffer>(new CpuBuffer(data, num_bytes, mapped_bytes));
}

CpuBuffer::~CpuBuffer() {
  if (mapped_bytes_ > 0) {
    munmap(data_, static_cast<size_t>(mapped_bytes_));
  } else {
    std::free(data_);
  }
}

namespace {

// CPUs in the affinity mask: what a container or taskset leaves.
int AvailableCpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return 1;
  return std::max(1, CPU_COUNT(&cpus));
}

void FillFloats(Buffer* buffer, float value) {
  if (buffer == nullptr) return;
  float* const floats = reinterpret_cast<float*>(buffer->host());
  std::fill(floats, floats + buffer->num_bytes() / sizeof(float), value);
}

}  // namespace

CpuBackend::CpuBackend(int num_threads)
    : pool_(num_threads > 0 ? num_threads : AvailableCpus()) {}

std::string CpuBackend::description() const {
  return absl::StrCat("cpu, ", pool_.num_threads(), " threads, ",
                      SimdTargetName());
}

absl::StatusOr<std::unique_ptr<Buffer>> CpuBackend::Allocate(
    BufferUse /*use*/, int64_t num_bytes) {
  return CpuBuffer::Allocate(num_bytes);
}

absl::StatusOr<std::unique_ptr<Buffer>> CpuBackend::Adopt(
    BufferUse /*use*/, char* host, int64_t num_bytes,
    absl::Status* registered) {
  *registered = absl::OkStatus();
  return std::make_unique<AdoptedBuffer>(host, num_bytes);
}

void CpuBackend::RowLanded(const Buffer& /*row*/, DType /*dtype*/,
                           const ElementRange& /*range*/) {}

absl::Status CpuBackend::Load(const OptimizerOptions& optimizer,
                              const Buffer& snapshot, Buffer* master,
                              Buffer* state0, Buffer* state1,
                              Buffer* narrowed_snapshot, DType narrowed_dtype) {
  const absl::Status status =
      CheckLoad(optimizer, snapshot, master, state0, state1, narrowed_snapshot,
                narrowed_dtype);
  if (!status.ok()) return status;
  std::memcpy(master->host(), snapshot.host(),
              static_cast<size_t>(snapshot.num_bytes()));
  FillFloats(state0, InitialState0(optimizer));
  FillFloats(state1, 0.0f);
  if (narrowed_snapshot != nullptr) {
    NarrowBlock(reinterpret_cast<const float*>(snapshot.host()),
                snapshot.num_bytes() / static_cast<int64_t>(sizeof(float)),
                narrowed_dtype,
                reinterpret_cast<uint16_t*>(narrowed_snapshot->host()));
  }
  return absl::OkStatus();
}

absl::Status CpuBackend::Read(const Buffer& state, absl::Span<float> values) {
  const absl::Status status = CheckStateCopy(&state, values.size());
  if (status.ok() && !values.empty()) {
    std::memcpy(values.data(), state.host(), values.size() * sizeof(float));
  }
  return status;
}

absl::Status CpuBackend::Write(absl::Span<const float> values, Buffer* state) {
  const absl::Status status = CheckStateCopy(state, values.size());
  if (status.ok() && !values.empty()) {
    std::memcpy(state->host(), values.data(), values.size() * sizeof(float));
  }
  return status;
}

absl::Status CpuBackend::Gram(const GramRequest& request) {
  const absl::Status status = CheckGramRequest(request);
  if (status.ok()) ComputeGram(request, &pool_);
  return status;
}

absl::Status CpuBackend::Update(const UpdateRequest& request) {
  const absl::Status status = CheckUpdateRequest(request);
  if (status.ok()) ComputeUpdate(request, &pool_);
  return status;
}

absl::Status CpuBackend::Combine(const UpdateRequest& request) {
  const absl::Status status = CheckCombineRequest(request);
  if (status.ok()) ComputeCombine(request, &pool_);
  return status;
}

absl::Status CpuBackend::Step(const UpdateRequest& request) {
  const absl::Status status = CheckStepRequest(request);
  if (status.ok()) ComputeStep(request, &pool_);
  return status;
}

absl::Status CpuBackend::Norms(const UpdateRequest& request,
                               absl::Span<RangeNorms> norms) {
  if (norms.size() != request.ranges.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel request: ", norms.size(), " norms for ",
                     request.ranges.size(), " ranges"));
  }
  const absl::Status status = CheckNormsRequest(request);
  if (status.ok()) ComputeNorms(request, &pool_, norms);
  return status;
}

}  // namespace agg
