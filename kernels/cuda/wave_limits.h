// How much a wave holds: what the backend launches at once, and what benchmarks
// that show it do. Pure.
#ifndef AGG_KERNELS_CUDA_WAVE_LIMITS_H_
#define AGG_KERNELS_CUDA_WAVE_LIMITS_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/args_block.h"
#include "kernels/cuda/chunk.h"
#include "kernels/step_constants.h"

namespace agg::cuda {

// Most chunks of a Gram's wave: 2^30 elements per row.
inline constexpr int64_t kMaxGramChunks = 65536;

// Backend::gram_products_at_once: at the data sheets' rates 3 ms of an H200 (67
// TFLOP/s of doubles), and 30 to 90 ms of cards that take pairs of floats, 13
// operations each (82 and 30 TFLOP/s of floats). A call of far fewer has too
// few blocks to fill a large card: 32 slices of 64 rows have 7e10.
inline constexpr double kGramProductsAtOnce = 1e11;

// Returns the number of chunks of a Gram's wave, whose partial sums, of
// `chunk_bytes` each, are to fit into `wave_bytes`; 0: none fits.
inline int64_t GramWaveChunks(int64_t chunk_bytes, int64_t wave_bytes) {
  return std::min(kMaxGramChunks, wave_bytes / chunk_bytes);
}

// Chunks of a wave of an Update, and of all that is made like it, whose bytes
// go to the host while the next one computes: 64 MiB of a snapshot. That is a
// few hundred microseconds of computing and more than a millisecond on the bus,
// so that the bus starts early and never waits.
inline constexpr int64_t kUpdateWaveChunks = 1024;
// And of one of which nothing goes there: 1 GiB of parameters. A launch costs
// what 10 us of the card's bandwidth do.
inline constexpr int64_t kMaxUpdateChunks = 16384;

// Returns the number of slots of such a wave, whose arguments are to fit into
// kArgsBytes; 0: none fits.
inline int64_t UpdateWaveSlots(int64_t num_rows) {
  const int64_t slot_bytes = static_cast<int64_t>(
      sizeof(StepConstants) + 2 * sizeof(Slot) + 8 * num_rows);
  const int64_t fixed_bytes =
      8 * num_rows + kMaxUpdateChunks * static_cast<int64_t>(sizeof(Chunk)) +
      256;
  return std::clamp<int64_t>((kArgsBytes - fixed_bytes) / slot_bytes, 0,
                             kMaxUpdateChunks);
}

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_WAVE_LIMITS_H_
