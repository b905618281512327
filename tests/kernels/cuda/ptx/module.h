// A PTX file as its text says it, before anything is known of what its
// instructions do. Plain data; parser.h fills it.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_MODULE_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_MODULE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace agg::ptx {

struct Operand {
  enum Kind {
    kRegister,  // index
    kSpecial,   // name: %tid.x and the like
    kNumber,    // bits: an integer's two's complement, or a float's pattern
    kSymbol,    // name: a parameter, a shared variable or a label
    kVector,    // parts: {a, b}, and a|b
    kAddress,   // parts[0] (register, symbol or number) + offset
    kSink,      // _
  };
  Kind kind = kNumber;
  int index = 0;
  std::string name;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::vector<Operand> parts;
};

struct Statement {
  int line = 0;    // of the file, from 1 on
  int guard = -1;  // a register, or none
  bool guard_negated = false;
  std::string opcode;  // with all its suffixes
  std::vector<Operand> operands;
};

// A parameter or a shared variable.
struct Variable {
  std::string name;
  int64_t num_bytes = 0;
  int64_t alignment = 1;
};

struct Entry {
  std::string name;
  int line = 0;
  std::vector<Variable> parameters;
  int64_t max_threads = 0;  // of a block; 0: not said
  int num_registers = 0;
  std::vector<Statement> statements;
  std::map<std::string, int> labels;  // indices of statements
};

struct Module {
  int target = 0;  // 80 of sm_80
  std::vector<Variable> shared;
  std::map<std::string, Entry> entries;
};

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_MODULE_H_
