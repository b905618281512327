// How far a checkpoint of one shard has come: plain values, apart from the
// writer, so that the coordinator can hear of it without any file.
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_PROGRESS_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_PROGRESS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "server/checkpoint/checkpoint_manifest.h"

namespace agg {

// What became of the last capture.
struct CheckpointProgress {
  enum class Stage : uint8_t { kNone, kWriting, kWritten, kFailed };
  Stage stage = Stage::kNone;
  CheckpointId id;
  CheckpointPart part;      // kWritten
  absl::Status error;       // kFailed
  int64_t num_skipped = 0;  // captures that came while one was being written
};

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_PROGRESS_H_
