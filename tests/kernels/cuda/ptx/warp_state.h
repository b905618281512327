// A warp of a block: registers, and where each lane is in the program.
#ifndef AGG_TESTS_KERNELS_CUDA_PTX_WARP_STATE_H_
#define AGG_TESTS_KERNELS_CUDA_PTX_WARP_STATE_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/cuda/ptx/lanes.h"
#include "tests/kernels/cuda/ptx/program.h"

namespace agg::ptx {

// How a warp's lanes are chosen.
struct Choice {
  std::mt19937* random = nullptr;  // null: in order
  bool alone = false;              // lane by lane
};

class WarpState {
 public:
  explicit WarpState(const Program* program);

  // For a new block. `threads`: the warp's lanes, of which there may be fewer
  // than kLanes.
  void Begin(std::vector<Thread> threads, BlockMemory* memory);
  void SetRegister(int index, int lane, uint64_t value);

  bool CanRun() const { return ready_ != 0; }
  bool HasEnded() const { return ready_ == 0 && waiting_ == 0; }
  // Whether all lanes wait for the block's barrier, and at the same one.
  bool IsAtBarrier() const;
  int num_threads() const { return static_cast<int>(threads_.size()); }

  // Runs some lanes for at most `num_steps` instructions, or until they part or
  // wait. False: there was a fault. REQUIRES: CanRun().
  bool RunSome(const Choice& choice, int64_t num_steps);
  // Lets the lanes that wait for the block's barrier go on.
  bool PassBarrier();

  // Of the fault, or of the first lane that waits.
  const std::string& fault() const { return lanes_.fault; }
  int fault_thread() const { return threads_[lanes_.fault_lane].actor.thread; }
  const Instruction* fault_instruction() const { return fault_instruction_; }
  void BlameWaiting();

  int64_t num_instructions() const { return num_instructions_; }

 private:
  uint32_t Choose(const Choice& choice) const;
  bool Step(uint32_t mask, int* at);
  bool Guard(const Instruction& instruction, uint32_t* mask);
  bool Execute(const Instruction& instruction, uint32_t mask);
  void Exit(const Instruction& instruction, uint32_t active);
  void Wait(const Instruction& instruction, uint32_t active, int at);
  void Release(int at);
  void Place(uint32_t mask, int at);

  const Program* const program_;
  std::vector<uint64_t> registers_;
  std::vector<uint32_t> defined_;  // lanes of each register
  std::vector<Thread> threads_;
  Lanes lanes_;
  int at_[kLanes] = {};
  uint32_t all_ = 0;      // lanes that there are
  uint32_t ready_ = 0;    // that may run
  uint32_t waiting_ = 0;  // that wait for others; the rest has ended
  const Instruction* fault_instruction_ = nullptr;
  int64_t num_instructions_ = 0;
};

}  // namespace agg::ptx

#endif  // AGG_TESTS_KERNELS_CUDA_PTX_WARP_STATE_H_
