// What an instruction sees while it runs: the lanes of a warp that take part,
// their registers, and the memory of their block.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_LANES_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_LANES_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "tests/kernels/cuda/ptx/global_memory.h"
#include "tests/kernels/cuda/ptx/program.h"
#include "tests/kernels/cuda/ptx/shared_memory.h"

namespace agg::ptx {

// An asynchronous copy of a thread that has not been waited for.
struct Copy {
  uint64_t to = 0;  // in the shared space
  uint64_t from = 0;
  int num_bytes = 0;
  int num_read = 0;  // zeros behind
  int64_t group = 0;
  char data[16] = {};  // read when it began, unless copies are late
};

struct Thread {
  Actor actor;
  int64_t number = 0;      // of the launch
  int64_t num_groups = 0;  // of copies, that are complete
  std::vector<Copy> copies;
};

// A block's memory and what it is in.
struct BlockMemory {
  SharedMemory* shared = nullptr;
  GlobalMemory* global = nullptr;
  absl::Span<const char> parameters;
  // Whether copies read their source when they are waited for, not before.
  bool late_copies = false;
};

class Lanes {
 public:
  using Values = uint64_t[kLanes];

  uint32_t mask = 0;
  uint64_t* registers = nullptr;  // kLanes of each
  const uint64_t* constants = nullptr;
  Thread* threads = nullptr;  // the warp's
  int num_threads = 0;        // that the warp has
  BlockMemory* memory = nullptr;
  // The first fault: what, and whose.
  std::string fault;
  int fault_lane = 0;

  const uint64_t* Source(const Instruction& instruction, int i) const {
    const uint32_t operand = instruction.operands[instruction.num_results + i];
    return (operand & Instruction::kConstant) != 0
               ? constants + (operand & ~Instruction::kConstant) * kLanes
               : registers + operand * kLanes;
  }
  uint64_t* Result(const Instruction& instruction, int i) const {
    return registers + instruction.operands[i] * kLanes;
  }

  template <class Do>
  void ForEach(const Do& what) const {
    if (mask == 0xffffffffu) {
      for (int lane = 0; lane < kLanes; ++lane) what(lane);
      return;
    }
    for (uint32_t left = mask; left != 0; left &= left - 1) {
      what(__builtin_ctz(left));
    }
  }

  void Fail(int lane, std::string what) {
    if (!fault.empty()) return;
    fault = std::move(what);
    fault_lane = lane;
  }
};

// A register's bits as a value, and back: zeros above it.
template <class T>
T ValueOf(uint64_t bits) {
  if constexpr (std::is_same_v<T, bool>) {
    return (bits & 1) != 0;
  } else {
    T value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
}

template <class T>
uint64_t BitsOf(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return bits;
}

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_LANES_H_
