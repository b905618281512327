// Walks through the Gram kernels' schedule on the host: lanes, loads, steps
// and the tensor core's definition (PTX ISA: A[L/4][L%4], B[L%4][L/4],
// C[L/4][2*(L%4)+{0,1}]), with whole numbers, so that sums are exact.
#include "kernels/cuda/gram_schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/kernel_args.h"

namespace agg::cuda {
namespace {

constexpr int kLanes = 32;

// value(row, element) of the matrix, a small whole number.
int64_t ValueAt(int64_t row, int64_t element) {
  return (row * 7 + element * 13 + row * element) % 31 - 15;
}

struct Tile {  // C of one pair of tiles, [m][n]
  int64_t entries[kTileRows][kTileRows] = {};
};

// One mma: a[lane] and b[lane] are the operands' registers.
void Multiply(const int64_t* a, const int64_t* b, Tile* c) {
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int v = 0; v < 2; ++v) {
      const int m = lane / 4;
      const int n = 2 * (lane % 4) + v;
      for (int k = 0; k < 4; ++k) {
        // A[m][k] is in lane 4 m + k, B[k][n] in lane 4 n + k.
        c->entries[m][n] += a[4 * m + k] * b[4 * n + k];
      }
    }
  }
}

// What the kernel's warps compute for the panels at first_i <= first_j.
class Panels {
 public:
  Panels(int num_rows, int num_elements, int element_bytes, int num_tiles)
      : num_rows_(num_rows),
        num_elements_(num_elements),
        element_bytes_(element_bytes),
        num_tiles_(num_tiles) {}

  // c[i][j]: rows of tile i of the first panel times those of tile j of the
  // second. Every (row, element) that a lane loads is counted.
  std::vector<std::vector<Tile>> Run(int first_i, int first_j) {
    const int step_elements = StepBytes(kQuad) / element_bytes_;
    std::vector<std::vector<Tile>> c(num_tiles_, std::vector<Tile>(num_tiles_));
    loads_.assign(num_rows_, std::vector<int>(num_elements_, 0));
    for (int at = 0; at < num_elements_; at += step_elements) {
      for (int e = 0; e < kLoadBytes / element_bytes_; ++e) {
        for (int i = 0; i < num_tiles_; ++i) {
          int64_t a[kLanes], b[kLanes];
          for (int j = 0; j < num_tiles_; ++j) {
            for (int lane = 0; lane < kLanes; ++lane) {
              a[lane] = Load(first_i + i * kTileRows, lane, at, e, false);
              b[lane] = Load(first_j + j * kTileRows, lane, at, e, i == 0);
            }
            Multiply(a, b, &c[i][j]);
          }
        }
      }
    }
    return c;
  }

  int64_t Entry(const std::vector<std::vector<Tile>>& c, int i, int j) const {
    return c[i / kTileRows][j / kTileRows]
        .entries[i % kTileRows][j % kTileRows];
  }

  const std::vector<std::vector<int>>& loads() const { return loads_; }

 private:
  int64_t Load(int tile_row, int lane, int at, int e, bool count) {
    const int wanted = tile_row + LaneRow(lane);
    const int row = ExistingRow(wanted, num_rows_);
    EXPECT_GE(row, 0);
    EXPECT_LT(row, num_rows_);
    const int byte = at * element_bytes_ + LaneByte(lane, kQuad);
    // Vector loads are 16-byte aligned relative to the chunk.
    EXPECT_EQ(byte % kLoadBytes, 0);
    const int element = byte / element_bytes_ + e;
    if (element >= num_elements_) return 0;
    if (count && wanted < num_rows_) ++loads_[row][element];
    return ValueAt(row, element);
  }

  const int num_rows_;
  const int num_elements_;
  const int element_bytes_;
  const int num_tiles_;
  std::vector<std::vector<int>> loads_;
};

int64_t Dot(int64_t i, int64_t j, int64_t num_elements) {
  int64_t sum = 0;
  for (int64_t k = 0; k < num_elements; ++k) {
    sum += ValueAt(i, k) * ValueAt(j, k);
  }
  return sum;
}

TEST(GramScheduleTest, APanelYieldsTheGramMatrixAndReadsEachElementOnce) {
  for (const int element_bytes : {4, 2}) {
    for (int num_rows = 9; num_rows <= 32; ++num_rows) {
      for (const int num_elements : {1, 31, 128, 333}) {
        const int num_tiles = static_cast<int>(CeilDivide(num_rows, 8));
        Panels panels(num_rows, num_elements, element_bytes, num_tiles);
        const auto c = panels.Run(0, 0);
        for (int i = 0; i < num_rows; ++i) {
          for (int j = i; j < num_rows; ++j) {
            ASSERT_EQ(panels.Entry(c, i, j), Dot(i, j, num_elements))
                << num_rows << " rows, pair " << i << "," << j;
          }
          for (int k = 0; k < num_elements; ++k) {
            ASSERT_EQ(panels.loads()[i][k], 1)
                << num_rows << " rows, row " << i << " element " << k;
          }
        }
      }
    }
  }
}

TEST(GramScheduleTest, TwoPanelsYieldTheirRectangle) {
  for (const int num_rows : {33, 40, 63, 65, 100}) {
    const int num_panels = static_cast<int>(CeilDivide(num_rows, kPanelRows));
    for (int pair = 0; pair < num_panels * (num_panels - 1) / 2; ++pair) {
      int panel_i, panel_j;
      OffDiagonalPair(pair, &panel_i, &panel_j);
      const int first_i = panel_i * kPanelRows;
      const int first_j = panel_j * kPanelRows;
      ASSERT_LT(first_j, num_rows);
      Panels panels(num_rows, 50, 4, kMaxTiles);
      const auto c = panels.Run(first_i, first_j);
      for (int i = 0; i < kPanelRows; ++i) {
        for (int j = 0; j < kPanelRows && first_j + j < num_rows; ++j) {
          ASSERT_EQ(panels.Entry(c, i, j), Dot(first_i + i, first_j + j, 50));
        }
      }
    }
  }
}

TEST(GramScheduleTest, TallProductsYieldEachPairOfTilesOnce) {
  for (int num_tiles = 2; num_tiles <= kMaxTiles; ++num_tiles) {
    std::vector<int> counts(num_tiles * (num_tiles + 1) / 2, 0);
    for (int index = 0; index < NumTallProducts(num_tiles); ++index) {
      const TallProduct t = TallProductOf(num_tiles, index);
      for (const int row : {t.first, t.second}) {
        if (row < 0) continue;
        ASSERT_LT(row, num_tiles);
        ++counts[TilePair(row, t.column)];
      }
    }
    EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << num_tiles;
  }
}

// mma.m16n8k4 by the PTX ISA: a0, a1 are A[L/4][L%4] and A[L/4+8][L%4], b is
// B[L%4][L/4]; C's registers are rows L/4, L/4, L/4+8, L/4+8 at columns
// 2*(L%4)+{0,1}. Where the kernel puts them must be where it looks for them.
TEST(GramScheduleTest, TallProductsYieldTheGramMatrix) {
  for (int num_tiles = 2; num_tiles <= kMaxTiles; ++num_tiles) {
    std::vector<Tile> shared(num_tiles * (num_tiles + 1) / 2);
    for (int index = 0; index < NumTallProducts(num_tiles); ++index) {
      const TallProduct t = TallProductOf(num_tiles, index);
      for (int lane = 0; lane < kLanes; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const int tile = i < 2 ? t.first : t.second;
          if (tile < 0) continue;
          const int m = lane / 4;
          const int n = 2 * (lane % 4) + i % 2;
          const int to = tile > t.column ? TileEntry(n, m) : TileEntry(m, n);
          int64_t& c = shared[TilePair(tile, t.column)]
                           .entries[to / kTileRows][to % kTileRows];
          for (int k = 0; k < 4; ++k) {
            c += ValueAt(tile * kTileRows + m, k) *
                 ValueAt(t.column * kTileRows + n, k);
          }
        }
      }
    }
    for (int i = 0; i < num_tiles * kTileRows; ++i) {
      for (int j = i; j < num_tiles * kTileRows; ++j) {
        ASSERT_EQ(shared[TilePair(i / kTileRows, j / kTileRows)]
                      .entries[i % kTileRows][j % kTileRows],
                  Dot(i, j, 4))
            << i << "," << j << " of " << num_tiles << " tiles";
      }
    }
  }
}

// The steps of the warps cover each byte of a chunk's row once, whether 4 or 32
// lanes share it.
TEST(GramScheduleTest, EveryByteHasOneLane) {
  for (const int row_lanes : {kQuad, kWarpLanes}) {
    const int step_bytes = StepBytes(row_lanes);
    // A warp takes a line, or more, before the next one's turn.
    const int turn_bytes = std::max(step_bytes, kLineBytes);
    EXPECT_EQ(kChunkElements * 2 % (kGramWarps * turn_bytes), 0);
    for (const int num_bytes : {2, 63, 64, 66, 2048, 5000, 65536}) {
      std::vector<int> owners(num_bytes, 0);
      for (int warp = 0; warp < kGramWarps; ++warp) {
        for (int step = 0; step * step_bytes < num_bytes; ++step) {
          const int in_turn = step * step_bytes % turn_bytes;
          const int turn = step * step_bytes / turn_bytes;
          const int at = (turn * kGramWarps + warp) * turn_bytes + in_turn;
          // One of the lanes that have other rows at the same place.
          for (int lane = 0; lane < row_lanes; ++lane) {
            const int begin = at + LaneByte(lane, row_lanes);
            for (int b = begin; b < begin + kLoadBytes && b < num_bytes; ++b) {
              ++owners[b];
            }
          }
        }
      }
      EXPECT_EQ(owners, std::vector<int>(num_bytes, 1)) << num_bytes;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      EXPECT_EQ(LaneByte(lane, row_lanes),
                LaneByte(lane % row_lanes, row_lanes));
    }
  }
}

// Lanes copy each piece of a tile's lines once, and each finds what it
// multiplies. Eight lanes that copy, or read, 16 bytes each do that at a time:
// they must not meet in a bank, of which there are 8 of that width.
TEST(GramScheduleTest, ATilesLinesAreCopiedOnceWithoutBankConflicts) {
  std::map<int, std::pair<int, int>> pieces;  // by slot: row, piece
  for (int index = 0; index < kLinesPerLane; ++index) {
    for (int first = 0; first < kLanes; first += 8) {
      std::set<int> banks;
      for (int lane = first; lane < first + 8; ++lane) {
        const int row = CopiedRow(lane, index);
        const int slot = LineSlot(row, lane % kLineLanes);
        banks.insert(slot % 8);
        EXPECT_TRUE(pieces.emplace(slot, std::make_pair(row, lane % kLineLanes))
                        .second);
      }
      EXPECT_EQ(banks.size(), 8u);
    }
  }
  EXPECT_EQ(pieces.size(), static_cast<size_t>(kTileRows * kLineLanes));
  EXPECT_EQ(pieces.rbegin()->first, kTileRows * kLineLanes - 1);
  std::set<std::pair<int, int>> read;
  for (int half = 0; half < 2; ++half) {
    for (int first = 0; first < kLanes; first += 8) {
      std::set<int> banks;
      for (int lane = first; lane < first + 8; ++lane) {
        const int piece = half * kQuad + lane % kQuad;
        const int slot = LineSlot(LaneRow(lane), piece);
        banks.insert(slot % 8);
        EXPECT_EQ(pieces[slot], std::make_pair(LaneRow(lane), piece));
        read.insert(pieces[slot]);
      }
      EXPECT_EQ(banks.size(), 8u);
    }
  }
  EXPECT_EQ(read.size(), pieces.size());
}

// Four warps' rings are what a kernel may have without asking for more.
TEST(GramScheduleTest, RingsFitIntoSharedMemory) {
  for (int num_loads = 1; num_loads <= 2 * kMaxTiles; ++num_loads) {
    EXPECT_GE(RingSteps(num_loads), 2);
    EXPECT_LE(
        kGramWarps * RingSteps(num_loads) * num_loads * kWarpLanes * kLoadBytes,
        48 << 10)
        << num_loads;
  }
  for (int tiles = 2; tiles <= kMaxTiles; ++tiles) {
    EXPECT_GE(TileRingSteps(tiles), 2);
    EXPECT_LE(
        kGramWarps * TileRingSteps(tiles) * tiles * kTileRows * kLineBytes,
        48 << 10)
        << tiles;
  }
}

TEST(GramScheduleTest, PairNumbersAreDense) {
  int index = 0;
  for (int j = 0; j < 20; ++j) {
    for (int i = 0; i <= j; ++i, ++index) {
      int found_i, found_j;
      UpperPair(index, &found_i, &found_j);
      EXPECT_EQ(found_i, i);
      EXPECT_EQ(found_j, j);
      EXPECT_EQ(TilePair(i, j), index);
    }
  }
  index = 0;
  for (int j = 1; j < 20; ++j) {
    for (int i = 0; i < j; ++i, ++index) {
      int found_i, found_j;
      OffDiagonalPair(index, &found_i, &found_j);
      EXPECT_EQ(found_i, i);
      EXPECT_EQ(found_j, j);
    }
  }
}

TEST(GramScheduleTest, PackedPairIsTheBackendsOrder) {
  for (const int64_t num_rows : {1, 2, 5, 33, 300}) {
    int64_t at = 0;
    for (int64_t i = 0; i < num_rows; ++i) {
      for (int64_t j = i; j < num_rows; ++j, ++at) {
        ASSERT_EQ(PackedPair(i, j, num_rows), at);
      }
    }
    // The kernel uses the entry behind the last one as the size.
    EXPECT_EQ(PackedPair(num_rows, num_rows, num_rows),
              PackedGramSize(num_rows));
  }
}

TEST(TileShapeTest, FitsBothScratchBuffers) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  for (const int64_t num_rows : {33, 64, 128, 500, 1024, 2896}) {
    const TileShape shape = PlanTile(num_rows, kBytes);
    ASSERT_GE(shape.num_batches, 1) << num_rows;
    EXPECT_LE(shape.num_batches, 64);
    EXPECT_LE(num_rows * shape.row_stride() * 8, kBytes);
    EXPECT_LE(num_rows * num_rows * 8 * shape.num_batches, kBytes);
  }
  EXPECT_EQ(PlanTile(128, kBytes).num_batches, 64);
  EXPECT_EQ(PlanTile(10000, kBytes).num_batches, 0);
}

}  // namespace
}  // namespace agg::cuda
