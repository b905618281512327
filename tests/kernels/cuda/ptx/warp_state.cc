#include "tests/kernels/cuda/ptx/warp_state.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda/ptx/lanes.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {

WarpState::WarpState(const Program* program)
    : program_(program),
      registers_(static_cast<size_t>(program->num_registers) * kLanes),
      defined_(program->num_registers) {}

void WarpState::Begin(std::vector<Thread> threads, BlockMemory* memory) {
  threads_ = std::move(threads);
  all_ = threads_.size() == kLanes ? 0xffffffffu
                                   : (uint32_t{1} << threads_.size()) - 1;
  ready_ = all_;
  waiting_ = 0;
  std::fill(defined_.begin(), defined_.end(), 0);
  std::fill(std::begin(at_), std::end(at_), 0);
  lanes_.registers = registers_.data();
  lanes_.constants = program_->constants.data();
  lanes_.threads = threads_.data();
  lanes_.num_threads = num_threads();
  lanes_.memory = memory;
}

void WarpState::SetRegister(int index, int lane, uint64_t value) {
  registers_[index * kLanes + lane] = value;
  defined_[index] |= uint32_t{1} << lane;
}

bool WarpState::IsAtBarrier() const {
  if (waiting_ != all_) return false;
  for (int lane = 0; lane < num_threads(); ++lane) {
    if (at_[lane] != at_[0]) return false;
  }
  return program_->instructions[at_[0]].opcode.kind == Kind::kBlock;
}

// Lanes of one place: in order, those that are furthest behind, which lets the
// others' ways join theirs.
uint32_t WarpState::Choose(const Choice& choice) const {
  int first = 0;
  if (choice.random != nullptr) {
    first = static_cast<int>((*choice.random)() % kLanes);
    while ((ready_ >> first & 1) == 0) first = (first + 1) % kLanes;
    if (choice.alone) return uint32_t{1} << first;
  } else {
    first = -1;
    for (uint32_t left = ready_; left != 0; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      if (first < 0 || at_[lane] < at_[first]) first = lane;
    }
  }
  uint32_t mask = 0;
  for (uint32_t left = ready_; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    if (at_[lane] == at_[first]) mask |= uint32_t{1} << lane;
  }
  if (choice.random == nullptr || (*choice.random)() % 2 == 0) return mask;
  const uint32_t some = mask & static_cast<uint32_t>((*choice.random)());
  return some != 0 ? some : mask;
}

void WarpState::Place(uint32_t mask, int at) {
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    at_[__builtin_ctz(left)] = at;
  }
}

bool WarpState::RunSome(const Choice& choice, int64_t num_steps) {
  const uint32_t mask = Choose(choice);
  int at = at_[__builtin_ctz(mask)];
  const bool is_whole = mask == ready_;
  for (int64_t i = 0; i < num_steps; ++i) {
    const int before = at;
    if (!Step(mask, &at)) return lanes_.fault.empty();
    // Others may be there now.
    if (!is_whole && at != before + 1) break;
  }
  Place(mask, at);
  return true;
}

// Runs the instruction at *at, and moves on. False: the lanes have parted or
// wait, and where they are is noted; or there was a fault.
bool WarpState::Step(uint32_t mask, int* at) {
  if (*at >= static_cast<int>(program_->instructions.size())) {
    lanes_.Fail(__builtin_ctz(mask), "runs past the end");
    return false;
  }
  const Instruction& instruction = program_->instructions[*at];
  num_instructions_ += __builtin_popcount(mask);
  uint32_t active = mask;
  if (instruction.guard >= 0 && !Guard(instruction, &active)) return false;
  switch (instruction.opcode.kind) {
    case Kind::kPlain:
      ++*at;
      return active == 0 || Execute(instruction, active);
    case Kind::kBranch:
      if (active != 0 && active != mask) {
        Place(active, instruction.target);
        Place(mask & ~active, *at + 1);
        return false;
      }
      *at = active == mask ? instruction.target : *at + 1;
      return true;
    case Kind::kExit:
    case Kind::kWarp:
    case Kind::kBlock:
      break;
  }
  if (active == 0) {
    ++*at;
    return true;
  }
  Place(active, *at);
  Place(mask & ~active, *at + 1);
  if (instruction.opcode.kind == Kind::kExit) {
    Exit(instruction, active);
  } else {
    Wait(instruction, active, *at);
  }
  return false;
}

// Leaves the lanes in *mask whose guard lets them.
bool WarpState::Guard(const Instruction& instruction, uint32_t* mask) {
  const uint32_t undefined = *mask & ~defined_[instruction.guard];
  if (undefined != 0) {
    fault_instruction_ = &instruction;
    lanes_.Fail(__builtin_ctz(undefined), "reads an undefined predicate");
    return false;
  }
  const uint64_t* const values = &registers_[instruction.guard * kLanes];
  for (uint32_t left = *mask; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    if (((values[lane] & 1) != 0) == instruction.guard_negated) {
      *mask &= ~(uint32_t{1} << lane);
    }
  }
  return true;
}

bool WarpState::Execute(const Instruction& instruction, uint32_t mask) {
  const uint32_t* const operands = instruction.operands;
  const int num_operands = instruction.num_results + instruction.num_sources;
  for (int i = instruction.num_results; i < num_operands; ++i) {
    if ((operands[i] & Instruction::kConstant) != 0) continue;
    const uint32_t undefined = mask & ~defined_[operands[i]];
    if (undefined != 0) {
      lanes_.Fail(__builtin_ctz(undefined), "reads an undefined register");
    }
  }
  if (lanes_.fault.empty()) {
    lanes_.mask = mask;
    instruction.opcode.handler(instruction, &lanes_);
  }
  for (int i = 0; i < instruction.num_results; ++i) {
    defined_[operands[i]] |= mask;
  }
  if (!lanes_.fault.empty()) fault_instruction_ = &instruction;
  return lanes_.fault.empty();
}

void WarpState::Exit(const Instruction& instruction, uint32_t active) {
  ready_ &= ~active;
  for (uint32_t left = active; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    if (threads_[lane].copies.empty()) continue;
    fault_instruction_ = &instruction;
    lanes_.Fail(lane, "ends before its asynchronous copies");
  }
}

// What the lanes of a warp do together happens when the last one comes.
void WarpState::Wait(const Instruction& instruction, uint32_t active, int at) {
  ready_ &= ~active;
  waiting_ |= active;
  if (instruction.opcode.kind != Kind::kWarp || waiting_ != all_) return;
  for (int lane = 0; lane < num_threads(); ++lane) {
    if (at_[lane] != at) return;
  }
  if (Execute(instruction, all_)) Release(at + 1);
}

void WarpState::Release(int at) {
  waiting_ = 0;
  ready_ = all_;
  Place(all_, at);
}

bool WarpState::PassBarrier() {
  const int at = at_[0];
  if (!Execute(program_->instructions[at], all_)) return false;
  Release(at + 1);
  return true;
}

void WarpState::BlameWaiting() {
  const int lane = waiting_ == 0 ? 0 : __builtin_ctz(waiting_);
  fault_instruction_ = &program_->instructions[at_[lane]];
  lanes_.Fail(lane, "waits for threads that have ended, or wait elsewhere");
}

}  // namespace agg::ptx
