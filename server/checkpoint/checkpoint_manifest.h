// What a checkpoint is, as plain values: the content of its manifest.json, and
// the names of its folder and its files (server/checkpoint/README.md 1).
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_MANIFEST_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/shard_plan.h"

namespace agg {

inline constexpr uint32_t kCheckpointFormat = 1;
inline constexpr char kManifestFile[] = "manifest.json";
// Parameters, and at most two arrays of the optimizer.
inline constexpr int kMaxCheckpointArrays = 3;

// Which version, made by which epoch. Ordered: the later one is newer, also
// where a rewind has counted versions again from a lower one.
struct CheckpointId {
  uint64_t made = 0;
  uint64_t version = 0;

  friend bool operator==(const CheckpointId& a, const CheckpointId& b) {
    return a.made == b.made && a.version == b.version;
  }
  friend bool operator<(const CheckpointId& a, const CheckpointId& b) {
    return a.made != b.made ? a.made < b.made : a.version < b.version;
  }
};

// A file with the slices of one shard.
struct CheckpointPart {
  std::string file;  // PartFileName
  int64_t num_bytes = 0;
  uint32_t crc32c = 0;  // of the file
};

// A worker at the time of the checkpoint.
struct CheckpointMember {
  int32_t rank = 0;
  uint64_t session = 0;
  uint64_t first_round = 0;
  std::string client;
  std::string identity = {};  // to whom the session belongs; "": to anybody
};

struct CheckpointManifest {
  std::string job;
  CheckpointId id;
  uint64_t history = 0;  // the epoch of the last seed or rewind
  int num_shards = 1;    // K when it was written
  Manifest tensors;
  std::string optimizer;              // a name of kernels/optimizer_table.h
  int num_state_arrays = 0;           // 0 to 2
  std::vector<CheckpointPart> parts;  // by ordinal
  std::vector<CheckpointMember> members;
  std::string record;  // bytes of the coordinator's, kept as they are
  std::string facts;   // likewise
  std::string config;  // text
};

// "1763800000000000-120" of made and version, and back; nothing for another
// name, so that what people put beside the checkpoints is left alone.
std::string CheckpointFolderName(const CheckpointId& id);
absl::optional<CheckpointId> ParseCheckpointFolderName(absl::string_view name);

// "begun-anew-1763800000000000", beside the checkpoints: the job began anew in
// that epoch by an operator's word. And back, as above.
std::string BegunAnewName(uint64_t epoch);
absl::optional<uint64_t> ParseBegunAnewName(absl::string_view name);

// "part-00002-of-00004.npz" of shard 2 of 4, and back.
struct PartName {
  int ordinal = 0;
  int num_shards = 1;
};
std::string PartFileName(int ordinal, int num_shards);
absl::optional<PartName> ParsePartFileName(absl::string_view name);

// INVALID_ARGUMENT with a line for each field that contradicts another or is
// out of range; parts have the names and the sizes that shard_plan gives them.
absl::Status ValidateCheckpointManifest(const CheckpointManifest& manifest);

// What a job asks of a checkpoint that it goes on from.
struct RestoringJob {
  std::string job;
  std::string optimizer;
  int num_state_arrays = 0;
  // Null as long as no worker has said which tensors there are.
  const Manifest* tensors = nullptr;
};

// INVALID_ARGUMENT with a line for each of job, optimizer, state arrays and
// tensors in which they differ. Everything else may differ: K, rates, rules.
absl::Status CheckRestorable(const CheckpointManifest& manifest,
                             const RestoringJob& job);

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_MANIFEST_H_
