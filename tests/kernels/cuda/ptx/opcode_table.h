// All opcodes that the interpreter knows, by their complete names: what is not
// here is an error. Written from the PTX ISA, chapter 9.7. Approximations
// (.approx, .full) and flushing of subnormals (.ftz) are left out on purpose:
// the kernels promise bits.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_OPCODE_TABLE_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_OPCODE_TABLE_H_

#include <string>
#include <unordered_map>

#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {

using OpcodeTable = std::unordered_map<std::string, Opcode>;

const OpcodeTable& Opcodes();

// Its parts. mov, whose operands decide what it does, is the decoder's.
void AddArithmetic(OpcodeTable* table);   // arithmetic.cc
void AddBits(OpcodeTable* table);         // bits.cc
void AddComparisons(OpcodeTable* table);  // comparisons.cc
void AddConversions(OpcodeTable* table);  // conversions.cc
void AddMemory(OpcodeTable* table);       // memory.cc
void AddWarp(OpcodeTable* table);         // warp.cc

// Handlers of mov: of a value, of parts to a value, of a value to parts.
void Move(const Instruction& instruction, Lanes* lanes);
void Pack(const Instruction& instruction, Lanes* lanes);
void Unpack(const Instruction& instruction, Lanes* lanes);

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_OPCODE_TABLE_H_
