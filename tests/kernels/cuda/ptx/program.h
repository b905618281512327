// An entry in the form that runs: instructions with a function each, and
// registers by their numbers. Made by decoder.h.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_PROGRAM_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_PROGRAM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/kernels/cuda/ptx/module.h"
#include "tests/kernels/cuda/ptx/shared_memory.h"

namespace agg::ptx {

inline constexpr int kLanes = 32;  // of a warp

class Lanes;
struct Instruction;
// Does the instruction for the lanes, whose sources are all defined.
using Handler = void (*)(const Instruction& instruction, Lanes* lanes);

enum class Kind : uint8_t {
  kPlain,
  kBranch,
  kExit,
  kWarp,   // all lanes of the warp together, of one place in the text
  kBlock,  // a barrier of the block
};

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kParameters };

// What an opcode says, suffixes included.
struct Opcode {
  Handler handler = nullptr;
  Kind kind = Kind::kPlain;
  int num_results = 1;     // leading operands that are written
  int num_sources = -1;    // registers and numbers that are read; -1: several
  bool is_vector = false;  // a result may have parts
  int least_target = 0;    // sm_.. that has it
  Space space = Space::kGeneric;
  uint8_t element_bytes = 0;  // of an access
  bool is_signed = false;     // a load widens with the sign
};

struct Instruction {
  Opcode opcode;
  bool guard_negated = false;
  int guard = -1;  // a register, or none
  int num_results = 0;
  int num_sources = 0;
  // Results, then sources: registers, or constants with kConstant added.
  static constexpr uint32_t kConstant = 0x80000000u;
  static constexpr int kMostOperands = 12;
  uint32_t operands[kMostOperands] = {};
  int num_addresses = 0;
  int64_t offsets[2] = {};     // of the addresses
  int target = 0;              // of a branch
  int line = 0;                // of the file
  const char* name = nullptr;  // the opcode as it is written
};

struct Program {
  std::string name;
  std::vector<Instruction> instructions;
  int num_registers = 0;
  std::map<std::string, int> special_registers;  // by name: %tid.x
  std::vector<uint64_t> constants;               // kLanes times each
  std::vector<Variable> parameters;
  std::vector<int64_t> parameter_offsets;
  int64_t parameter_bytes = 0;
  std::vector<SharedMemory::Range> shared;
  int64_t max_threads = 0;  // of a block; 0: not said
};

// Where parameters begin in their space, and the spaces in generic addresses:
// where no memory of a host can be.
inline constexpr uint64_t kParameterBase = 256;
inline constexpr uint64_t kSharedWindow = 0xa000000000000000u;
inline constexpr uint64_t kParameterWindow = 0xb000000000000000u;
inline constexpr uint64_t kWindowBytes = uint64_t{1} << 32;

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_PROGRAM_H_
