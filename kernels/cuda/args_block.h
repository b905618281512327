// Writes a launch's arrays of arguments where its kernel reads them.
#ifndef AGG_KERNELS_CUDA_ARGS_BLOCK_H_
#define AGG_KERNELS_CUDA_ARGS_BLOCK_H_

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/chunk_plan.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/kernel_args.h"
#include "kernels/cuda/numa_node.h"
#include "kernels/step_constants.h"

namespace agg::cuda {

// Bytes that a wave's arguments may take.
inline constexpr int64_t kArgsBytes = int64_t{4} << 20;

// The pinned memory for what does not fit into launches' parameters, allocated
// once. Use: Begin, Append.., launches.
class ArgsBlock {
 public:
  static absl::StatusOr<ArgsBlock> Make(const NumaNode& node);

  // Starts anew: waits for the last MarkRead. REQUIRES: launches that read
  // pinned memory are done, or before that MarkRead.
  absl::Status Begin();

  // Adds an array, 16-byte aligned, to `args` if it fits and to the pinned
  // memory otherwise. What is appended first is the likelier to fit.
  // REQUIRES: all arrays together, each rounded up to 16 bytes, fit into
  // kArgsBytes.
  template <class T>
  ArgArray<T> Append(absl::Span<const T> values, InlineArgs* args) {
    const int64_t size = RoundUp(values);
    if (size > kInlineBytes - args->num_bytes) return {AppendPinned(values), 0};
    const ArgArray<T> array = {nullptr, args->num_bytes};
    Write(values, args->bytes + args->num_bytes);
    args->num_bytes += static_cast<int32_t>(size);
    return array;
  }

  // Adds an array to the pinned memory. REQUIRES: as Append.
  template <class T>
  const T* AppendPinned(absl::Span<const T> values) {
    assert(num_bytes_ + RoundUp(values) <= kArgsBytes);
    char* const to = pinned_.get() + num_bytes_;
    Write(values, to);
    num_bytes_ += RoundUp(values);
    return reinterpret_cast<const T*>(to);
  }

  // Whether something had to be put into the pinned memory since Begin.
  bool uses_pinned() const { return num_bytes_ > 0; }

  // The launches that read the pinned memory come before this on `stream`.
  absl::Status MarkRead(cudaStream_t stream);

 private:
  static constexpr int64_t kAlignment = 16;

  ArgsBlock(PinnedMemory pinned, Event read)
      : pinned_(std::move(pinned)), read_(std::move(read)) {}

  template <class T>
  static int64_t RoundUp(absl::Span<const T> values) {
    const auto size = static_cast<int64_t>(values.size() * sizeof(T));
    return (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  template <class T>
  static void Write(absl::Span<const T> values, void* to) {
    if (!values.empty()) {
      std::memcpy(to, values.data(), values.size() * sizeof(T));
    }
  }

  PinnedMemory pinned_;
  Event read_;
  bool is_marked_ = false;
  int64_t num_bytes_ = 0;  // of the pinned memory, in use
};

// The chunks of a wave, for a GramLaunch or an UpdateLaunch: from its slots,
// or in a list where these are in the pinned memory, which is slow to bisect.
template <class Launch>
void AppendChunks(const Wave& wave, ArgsBlock* args, Launch* launch) {
  launch->slots = args->Append(absl::MakeConstSpan(wave.slots), &launch->args);
  launch->num_slots = static_cast<int32_t>(wave.slots.size());
  launch->num_chunks = wave.num_chunks;
  if (launch->slots.pinned != nullptr) {
    const std::vector<Chunk> chunks = ChunksOf(wave);
    launch->chunks = args->AppendPinned(absl::MakeConstSpan(chunks));
  }
}

// How much a wave holds: what the backend launches at once, and what benchmarks
// that show it do.
//
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

#endif  // AGG_KERNELS_CUDA_ARGS_BLOCK_H_
