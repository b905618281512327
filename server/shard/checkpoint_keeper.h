// A shard's checkpoints: the folder they lie in, and the writer for the arrays
// of the manifest at hand. Apart from the engine, since a disk may be slow:
// what is here waits for no phase, and no phase waits for what is here but a
// copy.
#ifndef AGG_SERVER_SHARD_CHECKPOINT_KEEPER_H_
#define AGG_SERVER_SHARD_CHECKPOINT_KEEPER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "server/base/file_system.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_folder.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/checkpoint_state.h"
#include "server/checkpoint/checkpoint_writer.h"

namespace agg {

// Thread-safe, but for SetFolder, which comes before all other calls. Without a
// folder there are no checkpoints: what asks for one is FAILED_PRECONDITION.
class CheckpointKeeper {
 public:
  // `files` outlives it.
  void SetFolder(CheckpointFolder folder, FileSystem* files);
  bool configured() const { return folder_.has_value(); }
  // What this process can read, oldest first; none without a folder.
  absl::StatusOr<std::vector<CheckpointState>> List() const;

  // A manifest is there: takes the memory of one copy. RESOURCE_EXHAUSTED:
  // there is no such memory.
  absl::Status Begin(const ShardArrays& arrays);
  // It is gone. What is returned ends with its thread, which may take as long
  // as the disk does: to be dropped without locks.
  std::shared_ptr<CheckpointWriter> End();

  // As CheckpointWriter::Capture; a repeat for the same version is OK.
  absl::Status Capture(const CheckpointId& id,
                       const CheckpointWriter::CopyArray& copy);
  CheckpointProgress progress() const;
  // Makes the checkpoint with this manifest.json real, and lets the oldest go
  // until `keep` are left. That these cannot be removed is logged.
  absl::Status Seal(const std::string& manifest_json, int keep);

  // The text of a checkpoint's manifest.json. Errors name the file; DATA_LOSS:
  // it is damaged.
  absl::StatusOr<std::string> ReadManifest(const CheckpointId& id) const;
  // The parts that this process can read of a checkpoint.
  absl::StatusOr<CheckpointReader> Open(
      const CheckpointManifest& manifest) const;

 private:
  std::shared_ptr<CheckpointWriter> writer() const;

  absl::optional<CheckpointFolder> folder_;
  FileSystem* files_ = nullptr;
  mutable Mutex mutex_;
  // Null without a folder or a manifest.
  std::shared_ptr<CheckpointWriter> writer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace agg

#endif  // AGG_SERVER_SHARD_CHECKPOINT_KEEPER_H_
