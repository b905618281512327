#include "tests/kernels/cuda/ptx/decoder.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/kernels/cuda/ptx/module.h"
#include "tests/kernels/cuda/ptx/opcode_table.h"
#include "tests/kernels/cuda/ptx/program.h"
#include "tests/kernels/cuda/ptx/shared_memory.h"

namespace agg::ptx {
namespace {

// Bytes between shared variables that may not be touched.
constexpr int64_t kGapBytes = 64;

// ptxas takes no more of it without being told to.
constexpr int64_t kMostSharedBytes = 48 << 10;

int64_t RoundUp(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

// The first error stays.
class Decoder {
 public:
  Decoder(const Module& module, const Entry& entry)
      : module_(module), entry_(entry) {}

  absl::StatusOr<Program> Run() {
    program_.name = entry_.name;
    program_.num_registers = entry_.num_registers;
    program_.max_threads = entry_.max_threads;
    program_.parameters = entry_.parameters;
    PlaceParameters();
    PlaceShared();
    for (const Statement& statement : entry_.statements) Decode(statement);
    if (!status_.ok()) return status_;
    return std::move(program_);
  }

 private:
  void Fail(absl::StatusCode code, int line, absl::string_view what) {
    if (!status_.ok()) return;
    status_ = absl::Status(
        code, absl::StrCat(entry_.name, ", PTX line ", line, ": ", what));
  }

  void PlaceParameters() {
    int64_t end = 0;
    for (const Variable& parameter : entry_.parameters) {
      const int64_t offset = RoundUp(end, parameter.alignment);
      program_.parameter_offsets.push_back(offset);
      symbols_[parameter.name] = kParameterBase + offset;
      end = offset + parameter.num_bytes;
    }
    program_.parameter_bytes = end;
  }

  // Of the module's variables those that the entry uses.
  void PlaceShared() {
    int64_t end = SharedMemory::kBase;
    int64_t num_bytes = 0;
    for (const Variable& variable : module_.shared) {
      if (!IsUsed(variable.name)) continue;
      const int64_t begin = RoundUp(end, variable.alignment);
      symbols_[variable.name] = begin;
      program_.shared.push_back({static_cast<uint32_t>(begin),
                                 static_cast<uint32_t>(variable.num_bytes)});
      end = begin + variable.num_bytes + kGapBytes;
      num_bytes += variable.num_bytes;
    }
    if (num_bytes > kMostSharedBytes) {
      Fail(absl::StatusCode::kInvalidArgument, entry_.line,
           "more than 48 KiB of shared memory");
    }
  }

  static bool Names(const Operand& operand, const std::string& name) {
    if (operand.kind == Operand::kSymbol && operand.name == name) return true;
    for (const Operand& part : operand.parts) {
      if (Names(part, name)) return true;
    }
    return false;
  }

  bool IsUsed(const std::string& name) const {
    for (const Statement& statement : entry_.statements) {
      for (const Operand& operand : statement.operands) {
        if (Names(operand, name)) return true;
      }
    }
    return false;
  }

  void Decode(const Statement& statement) {
    line_ = statement.line;
    Instruction instruction;
    instruction.line = statement.line;
    instruction.name = statement.opcode.c_str();
    instruction.guard = statement.guard;
    instruction.guard_negated = statement.guard_negated;
    if (!FindOpcode(statement, &instruction.opcode)) {
      return Fail(absl::StatusCode::kUnimplemented, line_,
                  absl::StrCat("unknown instruction ", statement.opcode,
                               " for sm_", module_.target));
    }
    if (instruction.opcode.kind == Kind::kBranch) {
      instruction.target = FindLabel(statement);
    } else {
      for (size_t i = 0; i < statement.operands.size(); ++i) {
        AddOperand(statement.operands[i],
                   static_cast<int>(i) < instruction.opcode.num_results,
                   &instruction);
      }
    }
    CheckOperands(instruction);
    program_.instructions.push_back(instruction);
  }

  void CheckOperands(const Instruction& instruction) {
    const Opcode& opcode = instruction.opcode;
    if ((opcode.num_sources >= 0 &&
         instruction.num_sources != opcode.num_sources) ||
        (!opcode.is_vector && instruction.num_results != opcode.num_results)) {
      Fail(absl::StatusCode::kUnimplemented, line_,
           absl::StrCat("unknown operands of ", instruction.name));
    }
  }

  bool FindOpcode(const Statement& statement, Opcode* opcode) const {
    if (absl::StartsWith(statement.opcode, "mov.") &&
        statement.operands.size() == 2) {
      return FindMove(statement, opcode);
    }
    const auto found = Opcodes().find(statement.opcode);
    if (found == Opcodes().end()) return false;
    *opcode = found->second;
    return opcode->least_target <= module_.target;
  }

  static bool FindMove(const Statement& statement, Opcode* opcode) {
    static const auto* const sizes = new std::map<std::string, uint8_t>{
        {"mov.pred", 1}, {"mov.b16", 2}, {"mov.u16", 2}, {"mov.s16", 2},
        {"mov.b32", 4},  {"mov.u32", 4}, {"mov.s32", 4}, {"mov.f32", 4},
        {"mov.b64", 8},  {"mov.u64", 8}, {"mov.s64", 8}, {"mov.f64", 8}};
    const auto size = sizes->find(statement.opcode);
    if (size == sizes->end()) return false;
    opcode->element_bytes = size->second;
    opcode->is_vector = true;
    opcode->handler = statement.operands[0].kind == Operand::kVector   ? &Unpack
                      : statement.operands[1].kind == Operand::kVector ? &Pack
                                                                       : &Move;
    return true;
  }

  int FindLabel(const Statement& statement) {
    if (statement.operands.size() == 1) {
      const auto found = entry_.labels.find(statement.operands[0].name);
      if (found != entry_.labels.end()) return found->second;
    }
    Fail(absl::StatusCode::kInvalidArgument, line_, "unknown label");
    return 0;
  }

  void AddOperand(const Operand& operand, bool is_result,
                  Instruction* instruction) {
    if (operand.kind == Operand::kVector || operand.kind == Operand::kAddress) {
      if (operand.kind == Operand::kAddress) {
        if (instruction->num_addresses == 2) {
          return Fail(absl::StatusCode::kUnimplemented, line_,
                      "too many addresses");
        }
        instruction->offsets[instruction->num_addresses++] = operand.offset;
      }
      for (const Operand& part : operand.parts) {
        AddOperand(part, is_result, instruction);
      }
      return;
    }
    const int at = instruction->num_results + instruction->num_sources;
    if (at == Instruction::kMostOperands) {
      return Fail(absl::StatusCode::kUnimplemented, line_, "too many operands");
    }
    instruction->operands[at] =
        is_result ? ResultOf(operand) : IndexOf(operand);
    ++(is_result ? instruction->num_results : instruction->num_sources);
  }

  uint32_t ResultOf(const Operand& operand) {
    if (operand.kind == Operand::kRegister) {
      return static_cast<uint32_t>(operand.index);
    }
    if (operand.kind != Operand::kSink) {
      Fail(absl::StatusCode::kInvalidArgument, line_,
           absl::StrCat("no register: ", operand.name));
    }
    return static_cast<uint32_t>(program_.num_registers++);
  }

  uint32_t IndexOf(const Operand& operand) {
    switch (operand.kind) {
      case Operand::kRegister:
        return static_cast<uint32_t>(operand.index);
      case Operand::kSpecial:
        return SpecialOf(operand.name);
      case Operand::kNumber:
        return ConstantOf(operand.bits);
      default:
        break;
    }
    const auto found = symbols_.find(operand.name);
    if (found != symbols_.end()) return ConstantOf(found->second);
    Fail(absl::StatusCode::kInvalidArgument, line_,
         absl::StrCat("unknown name ", operand.name));
    return 0;
  }

  uint32_t SpecialOf(const std::string& name) {
    const auto [found, added] =
        program_.special_registers.emplace(name, program_.num_registers);
    if (added) ++program_.num_registers;
    return static_cast<uint32_t>(found->second);
  }

  uint32_t ConstantOf(uint64_t bits) {
    const auto index =
        static_cast<uint32_t>(program_.constants.size() / kLanes);
    const auto [found, added] = constants_.emplace(bits, index);
    if (added)
      program_.constants.insert(program_.constants.end(), kLanes, bits);
    return found->second | Instruction::kConstant;
  }

  const Module& module_;
  const Entry& entry_;
  Program program_;
  absl::Status status_;
  int line_ = 0;
  std::map<std::string, int64_t> symbols_;
  std::map<uint64_t, uint32_t> constants_;
};

}  // namespace

absl::StatusOr<Program> Decode(const Module& module, const Entry& entry) {
  return Decoder(module, entry).Run();
}

}  // namespace agg::ptx
