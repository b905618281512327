#include "tests/kernels/cuda/ptx/opcode_table.h"

namespace agg::ptx {
namespace {

// Branches and ends have no handler.
void AddControl(OpcodeTable* table) {
  Opcode branch;
  branch.kind = Kind::kBranch;
  branch.num_results = 0;
  (*table)["bra"] = (*table)["bra.uni"] = branch;
  Opcode exit = branch;
  exit.kind = Kind::kExit;
  (*table)["ret"] = (*table)["exit"] = exit;
}

}  // namespace

const OpcodeTable& Opcodes() {
  static const OpcodeTable* const table = [] {
    auto* const made = new OpcodeTable;
    AddControl(made);
    AddArithmetic(made);
    AddBits(made);
    AddComparisons(made);
    AddConversions(made);
    AddMemory(made);
    AddWarp(made);
    return made;
  }();
  return *table;
}

}  // namespace agg::ptx
