// All slices of all arrays of one copy, from the process that has it to the one
// that has lost it (P15): the order of the slices, and that none is missing.
#ifndef AGG_SERVER_SHARD_COPY_TRANSFER_H_
#define AGG_SERVER_SHARD_COPY_TRANSFER_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/ingest/shard_layout.h"
#include "server/round/neighbour_peer.h"

namespace agg {

// Arrays are numbered as in checkpoints: 0 parameters, 1 state0, 2 state1.
// Sends array by array, each slice by slice in the layout's order. `read` fills
// a span with an array, padding included; 4 bytes of host memory for each
// element are taken meanwhile. Errors: those of `read` and of `sink`;
// RESOURCE_EXHAUSTED: there is no such memory.
absl::Status SendArrays(
    const ShardLayout& layout, int num_arrays,
    const std::function<absl::Status(int array, absl::Span<float> to)>& read,
    const std::function<absl::Status(const CopySlice&)>& sink);

// Where arrays come in. Each is filled, then finished, one after the other.
class ArrayTarget {
 public:
  virtual ~ArrayTarget() = default;
  // Host memory of the size of the layout. RESOURCE_EXHAUSTED: there is none.
  virtual absl::StatusOr<absl::Span<float>> Destination(int array) = 0;
  // What is in Destination becomes the array.
  virtual absl::Status Finish(int array) = 0;
};

// The other end of SendArrays. Thread-compatible.
class ArrayReceiver {
 public:
  // Both outlive it.
  ArrayReceiver(const ShardLayout* layout, int num_arrays, ArrayTarget* target)
      : layout_(layout), num_arrays_(num_arrays), target_(target) {}

  // INTERNAL for another slice than the next one, or of another size; errors of
  // the target.
  absl::Status Take(const CopySlice& slice);
  // DATA_LOSS if slices are missing.
  absl::Status Finish() const;

 private:
  const ShardLayout* const layout_;
  const int num_arrays_;
  ArrayTarget* const target_;
  int array_ = 0;        // that comes next,
  size_t position_ = 0;  // and its slice, in the layout
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_COPY_TRANSFER_H_
