// Writes a shard's checkpoints in the background: a copy of its arrays is taken
// between two rounds, and a thread makes a part of it while rounds go on.
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_WRITER_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_manifest.h"  // IWYU pragma: export

namespace agg {

// How a shard's arrays lie in memory: all alike, each slice at one place.
struct ShardArrays {
  ShardPlan plan;
  int ordinal = 0;
  int num_arrays = 1;        // parameters included, at most 3
  int64_t num_elements = 0;  // of one array, with gaps between slices if any
  // First element of each of the shard's slices, in the plan's order.
  std::vector<int64_t> slice_begins;
};

// Memory for one copy is taken at once and kept. Thread-safe.
class CheckpointWriter {
 public:
  // Bytes of the copy, for the memory plan.
  static int64_t NumBytes(const ShardArrays& arrays) {
    return arrays.num_arrays * arrays.num_elements * int64_t{sizeof(float)};
  }

  // RESOURCE_EXHAUSTED: there is no such memory.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Create(
      CheckpointFolder folder, const ShardArrays& arrays);
  // Gives up what is being written, between two slices.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Fills `to` with an array: 0 parameters, 1 state0, 2 state1.
  using CopyArray =
      std::function<absl::Status(int array, absl::Span<float> to)>;
  // Copies all arrays before it returns; they may change from then on. An error
  // of `copy` fails this checkpoint and is returned. FAILED_PRECONDITION: the
  // one before is still being written; this one is skipped and counted.
  absl::Status Capture(const CheckpointId& id, const CopyArray& copy);

  // How far it is: for whoever asks again and again. Nobody is called.
  CheckpointProgress progress() const;

  // The checkpoint that was captured last will not be sealed: its part goes,
  // now or when it is written. Nothing happens if another one was captured
  // since.
  absl::Status Discard(const CheckpointId& id);

 private:
  CheckpointWriter(CheckpointFolder folder, const ShardArrays& arrays,
                   std::vector<float> copy);
  absl::Status CopyAll(const CopyArray& copy);
  void Loop();
  absl::StatusOr<CheckpointPart> Write(const CheckpointId& id);
  // FAILED_PRECONDITION naming the first tensor with a parameter that is not
  // finite: such a version is worth nothing, and would push out one that is.
  absl::Status CheckFinite() const;
  // CANCELLED once the writer is to end.
  absl::StatusOr<absl::Span<const float>> SliceOf(size_t position, int array);
  absl::Span<const float> Values(size_t position, int array) const;
  // False: not yet, since the part has to be removed first. `stays`: it is
  // removed, or was there before.
  bool Finish(const absl::StatusOr<CheckpointPart>& part, bool stays);
  std::string PartFile() const {
    return PartFileName(arrays_.ordinal, arrays_.plan.num_shards);
  }

  CheckpointFolder folder_;
  const ShardArrays arrays_;
  std::vector<size_t> position_;  // of a slice of the plan, in the shard
  // Belongs to Capture until `copied_`, then to the thread until kWriting ends.
  std::vector<float> copy_;

  mutable Mutex mutex_;
  CondVar changed_;
  CheckpointProgress progress_ ABSL_GUARDED_BY(mutex_);
  bool copied_ ABSL_GUARDED_BY(mutex_) = false;
  bool discards_ ABSL_GUARDED_BY(mutex_) = false;  // once it is written
  // The part was there before: of a checkpoint of just this version, which may
  // be sealed. It has the same bytes, and is not discarded.
  bool was_there_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_WRITER_H_
