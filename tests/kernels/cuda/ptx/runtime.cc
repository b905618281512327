// The part of the CUDA runtime that launches kernels: what nvcc's host code
// calls (crt/host_runtime.h of the toolkit declares it).
#include "tests/kernels/cuda/ptx/runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "tests/kernels/cuda/emulator/device.h"
#include "tests/kernels/cuda/ptx/global_memory.h"
#include "tests/kernels/cuda/ptx/interpreter.h"
#include "tests/kernels/cuda/ptx/kernel_modules.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {
namespace {

using Ranges = std::map<const char*, int64_t>;

struct State {
  std::mutex mutex;
  int target = 90;
  uint32_t seed = 0;
  Ranges read_only;
  std::map<const void*, std::string> kernels;  // by the host's function
  std::map<int, std::set<std::string>> ran;    // by target
};

State& TheState() {
  static State* const state = new State;
  return *state;
}

using Lock = std::lock_guard<std::mutex>;

// What <<<>>> says, until the kernel's host function takes it.
struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> configurations;

// A launch with everything that it needs later.
struct Work {
  const Program* program = nullptr;
  Launch launch;
  std::vector<char> parameters;
  Ranges read_only;
  int target = 0;
};

// The emulator's memory. What may only be read is cut out of it.
GlobalMemory MemoryOf(const Ranges& read_only) {
  GlobalMemory memory;
  for (const emulator::Memory& range : emulator::KernelMemory()) {
    const char* begin = static_cast<const char*>(range.begin);
    const char* const end = begin + range.num_bytes;
    for (auto part = read_only.lower_bound(begin);
         part != read_only.end() && part->first < end; ++part) {
      memory.Add(begin, part->first - begin, true);
      memory.Add(part->first, part->second, false);
      begin = part->first + part->second;
    }
    memory.Add(begin, end - begin, true);
  }
  return memory;
}

void RunWork(const Work& work) {
  GlobalMemory memory = MemoryOf(work.read_only);
  Launch launch = work.launch;
  launch.parameters = work.parameters;
  const absl::Status status = Run(*work.program, launch, &memory);
  if (!status.ok()) {
    ADD_FAILURE() << "sm_" << work.target << ": " << status;
    return;
  }
  const Lock lock(TheState().mutex);
  TheState().ran[work.target].insert(WithoutHashes(work.program->name));
}

std::vector<char> ParametersOf(const Program& program, void** arguments) {
  std::vector<char> parameters(program.parameter_bytes);
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const char* const from = static_cast<const char*>(arguments[i]);
    std::copy(from, from + program.parameters[i].num_bytes,
              parameters.begin() + program.parameter_offsets[i]);
  }
  return parameters;
}

absl::StatusOr<const Program*> ProgramOf(const void* function, int target) {
  std::string name;
  {
    const Lock lock(TheState().mutex);
    const auto found = TheState().kernels.find(function);
    if (found == TheState().kernels.end()) {
      return absl::NotFoundError("a function that is no kernel");
    }
    name = found->second;
  }
  return FindKernel(target, name);
}

cudaError_t Enqueue(const void* function, dim3 grid, dim3 block,
                    void** arguments, size_t shared_bytes,
                    cudaStream_t stream) {
  const cudaError_t error = emulator::TakeLaunchError(stream);
  if (error != cudaSuccess) return error;
  Work work;
  {
    const Lock lock(TheState().mutex);
    work.target = TheState().target;
    work.launch.seed = TheState().seed;
    work.read_only = TheState().read_only;
  }
  const auto program = ProgramOf(function, work.target);
  if (!program.ok() || shared_bytes != 0) {
    ADD_FAILURE() << program.status() << "; " << shared_bytes
                  << " bytes of dynamic shared memory";
    return cudaErrorInvalidDeviceFunction;
  }
  work.program = *program;
  work.launch.grid = {grid.x, grid.y, grid.z};
  work.launch.block = {block.x, block.y, block.z};
  work.parameters = ParametersOf(**program, arguments);
  emulator::Enqueue(stream, [work = std::move(work)] { RunWork(work); });
  return cudaSuccess;
}

}  // namespace

void SetTarget(int target) {
  const Lock lock(TheState().mutex);
  TheState().target = target;
}

void SetSeed(uint32_t seed) {
  const Lock lock(TheState().mutex);
  TheState().seed = seed;
}

void SetReadOnly(const void* begin, int64_t num_bytes) {
  const Lock lock(TheState().mutex);
  TheState().read_only[static_cast<const char*>(begin)] = num_bytes;
}

void ClearReadOnly() {
  const Lock lock(TheState().mutex);
  TheState().read_only.clear();
}

std::set<std::string> RegisteredKernels() {
  const Lock lock(TheState().mutex);
  std::set<std::string> names;
  for (const auto& [function, name] : TheState().kernels) names.insert(name);
  return names;
}

std::set<std::string> KernelsThatRan(int target) {
  const Lock lock(TheState().mutex);
  return TheState().ran[target];
}

extern "C" {

void** __cudaRegisterFatBinary(void* /*binary*/) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
void __cudaUnregisterFatBinary(void** /*handle*/) {}

void __cudaRegisterFunction(void** /*handle*/, const char* host_function,
                            char* /*device_function*/, const char* device_name,
                            int /*thread_limit*/, void* /*thread*/,
                            void* /*block*/, void* /*block_size*/,
                            void* /*grid_size*/, int* /*warp_size*/) {
  const Lock lock(TheState().mutex);
  TheState().kernels[host_function] = WithoutHashes(device_name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block,
                                       size_t* shared_bytes, void* stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const Configuration& last = configurations.back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  configurations.pop_back();
  return cudaSuccess;
}

// A kernel's handle is its host function's address.
cudaError_t __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block,
                               void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return Enqueue(kernel, grid, block, arguments, shared_bytes, stream);
}

// Of toolkits before 13.
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block,
                             void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return Enqueue(function, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                  const void* function) {
  *attributes = cudaFuncAttributes();
  const cudaError_t error = emulator::LoadError();
  if (error != cudaSuccess) return error;
  int target = 0;
  {
    const Lock lock(TheState().mutex);
    target = TheState().target;
  }
  const auto program = ProgramOf(function, target);
  if (program.ok()) return cudaSuccess;
  ADD_FAILURE() << program.status();
  return cudaErrorInvalidDeviceFunction;
}

cudaError_t cudaFuncSetAttribute(const void* function,
                                 cudaFuncAttribute /*attribute*/,
                                 int /*value*/) {
  return emulator::PreferShared(function);
}

// For benchmarks alone: one block at a time runs here.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* num_blocks, const void* /*function*/, int /*threads*/,
    size_t /*shared_bytes*/, unsigned /*flags*/) {
  *num_blocks = 1;
  return cudaSuccess;
}

}  // extern "C"

}  // namespace agg::ptx
