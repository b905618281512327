// What the lanes of a warp do together: 9.7.9.6 (shfl.sync), 9.7.13 (barriers,
// redux.sync) and 9.7.14.5 (mma with .f64). All lanes are there.
#include <cmath>
#include <cstdint>

#include "tests/kernels/cuda/ptx/elementwise.h"
#include "tests/kernels/cuda/ptx/lanes.h"
#include "tests/kernels/cuda/ptx/opcode_table.h"

namespace agg::ptx {
namespace {

constexpr uint64_t kAllLanes = 0xffffffffu;

// Kernels exchange between whole warps, so a mask that leaves someone out is a
// mistake.
bool CheckMask(const Instruction& instruction, int source, Lanes* lanes) {
  const uint64_t* const masks = lanes->Source(instruction, source);
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((lanes->mask >> lane & 1) != 0 &&
        (masks[lane] & kAllLanes) == kAllLanes) {
      continue;
    }
    lanes->Fail(lane, "not all lanes of the warp take part");
    return false;
  }
  return true;
}

enum class Shuffle { kUp, kDown, kButterfly, kIndex };

// Whose value `lane` gets, and whether that lane is in range.
template <Shuffle kMode>
int SourceLane(int lane, uint32_t b, uint32_t c, bool* in_range) {
  const int by = static_cast<int>(b & 0x1f);
  const auto segment = static_cast<int>(c >> 8 & 0x1f);
  const auto clamp = static_cast<int>(c & 0x1f);
  const int least = lane & segment;
  const int most = least | (clamp & ~segment);
  int from = 0;
  switch (kMode) {
    case Shuffle::kUp:
      from = lane - by;
      *in_range = from >= most;
      break;
    case Shuffle::kDown:
      from = lane + by;
      *in_range = from <= most;
      break;
    case Shuffle::kButterfly:
      from = lane ^ by;
      *in_range = from <= most;
      break;
    case Shuffle::kIndex:
      from = least | (by & ~segment);
      *in_range = from <= most;
      break;
  }
  return *in_range ? from : lane;
}

// d|p, a, b, c, mask
template <Shuffle kMode>
void Exchange(const Instruction& instruction, Lanes* lanes) {
  if (!CheckMask(instruction, 3, lanes)) return;
  const uint64_t* const a = lanes->Source(instruction, 0);
  const uint64_t* const b = lanes->Source(instruction, 1);
  const uint64_t* const c = lanes->Source(instruction, 2);
  Lanes::Values values;
  Lanes::Values in_range;
  for (int lane = 0; lane < kLanes; ++lane) {
    bool is_in_range = false;
    const int from =
        SourceLane<kMode>(lane, static_cast<uint32_t>(b[lane]),
                          static_cast<uint32_t>(c[lane]), &is_in_range);
    values[lane] = a[from] & kAllLanes;
    in_range[lane] = is_in_range ? 1 : 0;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    lanes->Result(instruction, 0)[lane] = values[lane];
    if (instruction.num_results > 1) {
      lanes->Result(instruction, 1)[lane] = in_range[lane];
    }
  }
}

struct Or {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a | b; }
};
struct Add {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a + b; }
};

// d, a, mask
template <class Function>
void Reduce(const Instruction& instruction, Lanes* lanes) {
  if (!CheckMask(instruction, 1, lanes)) return;
  const uint64_t* const a = lanes->Source(instruction, 0);
  uint32_t result = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    result = Function()(result, static_cast<uint32_t>(a[lane]));
  }
  uint64_t* const to = lanes->Result(instruction, 0);
  for (int lane = 0; lane < kLanes; ++lane) to[lane] = result;
}

// D = A B + C with A of 8 kTiles x 4, B of 4 x 8. Of A the lane L has the rows
// L / 4, L / 4 + 8 at column L % 4; of B the row L % 4 at column L / 4; of C
// and D the rows L / 4, L / 4 + 8 at columns 2 (L % 4), 2 (L % 4) + 1. In which
// order the products are added is not specified; here by fma, k ascending.
template <int kTiles>
void Multiply(const Instruction& instruction, Lanes* lanes) {
  if (lanes->mask != kAllLanes) {
    return lanes->Fail(0, "not all lanes of the warp take part");
  }
  const uint64_t* const b = lanes->Source(instruction, kTiles);
  double product[2 * kTiles][kLanes];
  for (int i = 0; i < 2 * kTiles; ++i) {
    const uint64_t* const a = lanes->Source(instruction, i / 2);
    const uint64_t* const c = lanes->Source(instruction, kTiles + 1 + i);
    for (int lane = 0; lane < kLanes; ++lane) {
      const int row = lane / 4;
      const int column = lane % 4 * 2 + i % 2;
      double sum = ValueOf<double>(c[lane]);
      for (int k = 0; k < 4; ++k) {
        sum = std::fma(ValueOf<double>(a[row * 4 + k]),
                       ValueOf<double>(b[column * 4 + k]), sum);
      }
      product[i][lane] = sum;
    }
  }
  for (int i = 0; i < 2 * kTiles; ++i) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes->Result(instruction, i)[lane] = BitsOf(product[i][lane]);
    }
  }
}

// Counts of barriers are kept by who runs the block.
void JoinWarp(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const masks = lanes->Source(instruction, 0);
  lanes->ForEach([&](int lane) {
    if ((masks[lane] & kAllLanes) != kAllLanes) {
      return lanes->Fail(lane, "not all lanes of the warp take part");
    }
    ++lanes->threads[lane].actor.warp_barriers;
  });
}

// bar.sync 0, the barrier that __syncthreads is.
void JoinBlock(const Instruction& instruction, Lanes* lanes) {
  const uint64_t* const barrier = lanes->Source(instruction, 0);
  lanes->ForEach([&](int lane) {
    if (barrier[lane] != 0) lanes->Fail(lane, "a barrier other than 0");
    ++lanes->threads[lane].actor.warp_barriers;
    ++lanes->threads[lane].actor.block_barriers;
  });
}

Opcode OfWarp(Handler handler, int num_results, int num_sources) {
  Opcode opcode = Plain(handler, num_sources);
  opcode.kind = Kind::kWarp;
  opcode.num_results = num_results;
  opcode.is_vector = true;
  return opcode;
}

}  // namespace

void AddWarp(OpcodeTable* table) {
  (*table)["shfl.sync.up.b32"] = OfWarp(&Exchange<Shuffle::kUp>, 1, 4);
  (*table)["shfl.sync.down.b32"] = OfWarp(&Exchange<Shuffle::kDown>, 1, 4);
  (*table)["shfl.sync.bfly.b32"] = OfWarp(&Exchange<Shuffle::kButterfly>, 1, 4);
  (*table)["shfl.sync.idx.b32"] = OfWarp(&Exchange<Shuffle::kIndex>, 1, 4);
  (*table)["redux.sync.add.s32"] = OfWarp(&Reduce<Add>, 1, 2);
  (*table)["redux.sync.add.u32"] = OfWarp(&Reduce<Add>, 1, 2);
  (*table)["redux.sync.or.b32"] = OfWarp(&Reduce<Or>, 1, 2);
  (*table)["mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"] =
      OfWarp(&Multiply<1>, 1, 4);
  Opcode tall = OfWarp(&Multiply<2>, 1, 7);
  tall.least_target = 90;
  (*table)["mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64"] = tall;
  (*table)["bar.warp.sync"] = OfWarp(&JoinWarp, 0, 1);
  Opcode barrier = OfWarp(&JoinBlock, 0, 1);
  barrier.kind = Kind::kBlock;
  (*table)["bar.sync"] = (*table)["barrier.sync.aligned"] = barrier;
}

}  // namespace agg::ptx
