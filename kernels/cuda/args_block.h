// Writes a launch's arrays of arguments where its kernel reads them.
#ifndef AGG_KERNELS_CUDA_ARGS_BLOCK_H_
#define AGG_KERNELS_CUDA_ARGS_BLOCK_H_

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
#include "kernels/cuda/pinned_memory.h"

namespace agg::cuda {

// Bytes that a wave's arguments may take.
inline constexpr int64_t kArgsBytes = int64_t{4} << 20;

// The pinned memory for what does not fit into launches' parameters, allocated
// once. Use: Begin, Append.., launches.
class ArgsBlock {
 public:
  static absl::StatusOr<ArgsBlock> Make();

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

}  // namespace agg::cuda

#endif  // AGG_KERNELS_CUDA_ARGS_BLOCK_H_
