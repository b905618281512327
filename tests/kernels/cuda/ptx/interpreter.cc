#include "tests/kernels/cuda/ptx/interpreter.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda/ptx/global_memory.h"
#include "tests/kernels/cuda/ptx/lanes.h"
#include "tests/kernels/cuda/ptx/program.h"
#include "tests/kernels/cuda/ptx/shared_memory.h"
#include "tests/kernels/cuda/ptx/warp_state.h"

namespace agg::ptx {
namespace {

std::atomic<int64_t> num_instructions{0};

// Of a block: a loop that does not end would go on for ever.
constexpr int64_t kMostInstructions = int64_t{1} << 34;

unsigned Volume(const std::array<unsigned, 3>& size) {
  return size[0] * size[1] * size[2];
}

std::array<unsigned, 3> PlaceIn(const std::array<unsigned, 3>& size,
                                unsigned index) {
  return {index % size[0], index / size[0] % size[1],
          index / size[0] / size[1]};
}

class Runner {
 public:
  Runner(const Program& program, const Launch& launch, GlobalMemory* memory)
      : program_(program),
        launch_(launch),
        random_(launch.seed),
        num_threads_(Volume(launch.block)),
        shared_(program.shared) {
    memory_.shared = &shared_;
    memory_.global = memory;
    memory_.parameters = launch.parameters;
    memory_.late_copies = launch.seed % 2 == 1;
    const unsigned num_warps = (num_threads_ + kLanes - 1) / kLanes;
    for (unsigned w = 0; w < num_warps; ++w) warps_.emplace_back(&program);
  }

  absl::Status Run() {
    std::vector<unsigned> blocks(Volume(launch_.grid));
    std::iota(blocks.begin(), blocks.end(), 0u);
    if (launch_.seed != 0) std::shuffle(blocks.begin(), blocks.end(), random_);
    for (const unsigned block : blocks) {
      BeginBlock(block);
      const WarpState* const faulty = RunBlock();
      if (faulty != nullptr) return FaultOf(*faulty, block);
    }
    for (const WarpState& warp : warps_) {
      num_instructions += warp.num_instructions();
    }
    return absl::OkStatus();
  }

 private:
  void BeginBlock(unsigned block) {
    shared_.Reset();
    choice_.random = launch_.seed == 0 ? nullptr : &random_;
    choice_.alone = launch_.seed != 0 && random_() % 4 == 0;
    for (size_t w = 0; w < warps_.size(); ++w) {
      const auto first = static_cast<unsigned>(w * kLanes);
      std::vector<Thread> threads(
          std::min<unsigned>(kLanes, num_threads_ - first));
      for (size_t lane = 0; lane < threads.size(); ++lane) {
        threads[lane].actor.thread = static_cast<int>(first + lane);
        threads[lane].number = int64_t{block} * num_threads_ + first + lane;
      }
      warps_[w].Begin(std::move(threads), &memory_);
      for (const auto& [name, index] : program_.special_registers) {
        for (int lane = 0; lane < warps_[w].num_threads(); ++lane) {
          warps_[w].SetRegister(index, lane,
                                Special(name, block, first + lane));
        }
      }
    }
  }

  // %tid.x and the like. Others were refused by CheckLaunch.
  uint64_t Special(const std::string& name, unsigned block,
                   unsigned thread) const {
    if (name == "%laneid") return thread % kLanes;
    const int axis = name.back() - 'x';
    if (name[1] == 't') return PlaceIn(launch_.block, thread)[axis];
    if (name[1] == 'c') return PlaceIn(launch_.grid, block)[axis];
    return name[2] == 't' ? launch_.block[axis] : launch_.grid[axis];
  }

  // Returns the warp with a fault, or null.
  WarpState* RunBlock() {
    size_t turn = 0;
    for (;;) {
      WarpState* const warp = NextWarp(&turn);
      if (warp != nullptr) {
        const int64_t num_steps =
            choice_.random == nullptr ? kMostInstructions : 1 + random_() % 64;
        if (!warp->RunSome(choice_, num_steps)) return warp;
        continue;
      }
      bool all_ended = true;
      for (const WarpState& each : warps_) all_ended &= each.HasEnded();
      if (all_ended) return nullptr;
      if (WarpState* const stuck = PassBarrier()) return stuck;
    }
  }

  WarpState* NextWarp(size_t* turn) {
    if (choice_.random != nullptr) *turn = random_() % warps_.size();
    for (size_t i = 0; i < warps_.size(); ++i) {
      WarpState& warp = warps_[(*turn + i) % warps_.size()];
      if (warp.CanRun()) {
        *turn = (*turn + i) % warps_.size();
        return &warp;
      }
    }
    return nullptr;
  }

  // All wait: either for the block's barrier, or for ever.
  WarpState* PassBarrier() {
    for (WarpState& warp : warps_) {
      if (!warp.IsAtBarrier()) {
        WarpState* const stuck = FirstWaiting();
        stuck->BlameWaiting();
        return stuck;
      }
    }
    for (WarpState& warp : warps_) {
      if (!warp.PassBarrier()) return &warp;
    }
    return nullptr;
  }

  WarpState* FirstWaiting() {
    for (WarpState& warp : warps_) {
      if (!warp.HasEnded()) return &warp;
    }
    return &warps_[0];
  }

  absl::Status FaultOf(const WarpState& warp, unsigned block) const {
    const Instruction* const instruction = warp.fault_instruction();
    return absl::AbortedError(absl::StrCat(
        program_.name, ", PTX line ",
        instruction == nullptr ? 0 : instruction->line, " (",
        instruction == nullptr ? "end" : instruction->name, "), block ", block,
        ", thread ", warp.fault_thread(), ": ", warp.fault()));
  }

  const Program& program_;
  const Launch& launch_;
  std::mt19937 random_;
  const unsigned num_threads_;
  SharedMemory shared_;
  BlockMemory memory_;
  std::deque<WarpState> warps_;
  Choice choice_;
};

bool IsKnownSpecial(const std::string& name) {
  if (name == "%laneid") return true;
  for (const char* prefix : {"%tid.", "%ntid.", "%ctaid.", "%nctaid."}) {
    for (const char* axis : {"x", "y", "z"}) {
      if (name == absl::StrCat(prefix, axis)) return true;
    }
  }
  return false;
}

absl::Status CheckLaunch(const Program& program, const Launch& launch) {
  for (const auto& [name, index] : program.special_registers) {
    if (!IsKnownSpecial(name)) {
      return absl::UnimplementedError(
          absl::StrCat(program.name, ": unknown register ", name));
    }
  }
  const int64_t num_threads = Volume(launch.block);
  const int64_t limit = program.max_threads == 0 ? 1024 : program.max_threads;
  if (num_threads < 1 || num_threads > limit || Volume(launch.grid) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(program.name, ": ", num_threads, " threads, at most ",
                     limit, ", in ", Volume(launch.grid), " blocks"));
  }
  if (static_cast<int64_t>(launch.parameters.size()) !=
      program.parameter_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        program.name, ": ", launch.parameters.size(),
        " bytes of parameters instead of ", program.parameter_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Run(const Program& program, const Launch& launch,
                 GlobalMemory* memory) {
  const absl::Status status = CheckLaunch(program, launch);
  if (!status.ok()) return status;
  return Runner(program, launch, memory).Run();
}

int64_t NumInstructions() { return num_instructions; }

}  // namespace agg::ptx
