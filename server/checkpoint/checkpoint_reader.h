// Reads a sealed checkpoint: slices for a shard of any number of shards, since
// how tensors are cut into slices does not depend on it.
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_READER_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/shard_plan.h"
#include "server/base/clock.h"
#include "server/base/file_system.h"
#include "server/checkpoint/checkpoint_manifest.h"
#include "server/checkpoint/part_layout.h"

namespace agg {

// The manifest in `folder`, which has to be that of `id`, as the folder's name
// says; nothing: of any, since people rename what they keep. Errors name the
// file: those of FileSystem and of ParseCheckpointManifest.
absl::StatusOr<CheckpointManifest> ReadCheckpointManifest(
    FileSystem* files, const std::string& folder,
    const absl::optional<CheckpointId>& id);

// Errors name the file; a damaged one is DATA_LOSS. Thread-compatible.
class CheckpointReader {
 public:
  // Opens nothing yet. `manifest`: of ReadCheckpointManifest, or from another
  // process whose folder has it. `files` outlives the reader.
  static absl::StatusOr<CheckpointReader> Create(
      FileSystem* files, const std::string& folder,
      const CheckpointManifest& manifest);

  // Sets what moves with each piece that is read; null (the default): nobody
  // looks. It outlives the reader.
  void SetProgress(Progress* progress) { progress_ = progress; }

  const CheckpointManifest& manifest() const { return manifest_; }
  // Plan for the number of shards that wrote the checkpoint. Its `slices` are
  // the same for any number of shards.
  const ShardPlan& plan() const { return plan_; }

  // Compares length and CRC32C of a part with the manifest: reads what
  // ReadSlice has not read of it, so that each byte is read once.
  // REQUIRES: 0 <= ordinal < manifest().num_shards.
  absl::Status VerifyPart(int ordinal);

  // Reads a slice (an index into plan().slices) of array 0 (parameters), 1 or
  // 2 (state) into `values`, which has its number of elements, with the bits
  // that were written. Checks the entry's own checksum, no other entry's.
  // REQUIRES: array <= manifest().num_state_arrays.
  absl::Status ReadSlice(int32_t slice, int array, absl::Span<float> values);

 private:
  CheckpointReader(FileSystem* files, std::string folder,
                   CheckpointManifest manifest)
      : files_(files),
        folder_(std::move(folder)),
        manifest_(std::move(manifest)) {}

  // Bytes of a part that have been read, and their CRC32C.
  struct Piece {
    int64_t num_bytes = 0;
    uint32_t crc32c = 0;
  };

  // Reads in pieces that a slow disk brings soon; each of them is progress.
  absl::Status Read(ReadableFile* file, int64_t offset, absl::Span<char> bytes);
  // Returns the open file of a part, which is as long as the manifest says.
  absl::StatusOr<ReadableFile*> Part(int ordinal);
  std::string PathOf(int ordinal) const;

  FileSystem* files_;
  std::string folder_;
  CheckpointManifest manifest_;
  ShardPlan plan_;
  std::vector<PartLayout> layouts_;                   // by ordinal
  std::vector<int32_t> position_;                     // of a slice in its part
  std::vector<std::unique_ptr<ReadableFile>> parts_;  // null: not open yet
  std::vector<std::map<int64_t, Piece>> read_;        // of a part, by offset
  Progress* progress_ = nullptr;
};

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_READER_H_
