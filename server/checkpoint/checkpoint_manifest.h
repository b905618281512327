// What a checkpoint is, as plain values: the content of its manifest.json, as
// text too, and the names of its folder and its files
// (server/checkpoint/README.md 1). Also how far one is that is being written.
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_MANIFEST_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "proto/shard_plan.h"

namespace agg {

inline constexpr uint32_t kCheckpointFormat = 1;
inline constexpr char kManifestFile[] = "manifest.json";
// Parameters, and at most two arrays of the optimizer.
inline constexpr int kMaxCheckpointArrays = 3;

// Size limit of the job's record, which is JSON (proto/README.md, Limits). A
// rule remembers a number for each tensor and worker at most, of up to 26
// characters with what is between them: 1.33 GB for 100,000 tensors and 512
// workers. All else is small beside that, except what shadow rules remember.
inline constexpr int64_t kMaxJobRecordBytes = 1'400'000'000;
// Size limit of manifest.json, which has the record in base64, and names and
// shapes of the tensors.
inline constexpr int64_t kMaxManifestBytes = 2'100'000'000;

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

// How far a checkpoint of one shard has come: what became of its last capture.
struct CheckpointProgress {
  enum class Stage : uint8_t { kNone, kWriting, kWritten, kFailed };
  Stage stage = Stage::kNone;
  CheckpointId id;
  CheckpointPart part;      // kWritten
  absl::Status error;       // kFailed
  int64_t num_skipped = 0;  // captures that came while one was being written
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

// Returns the text of manifest.json: the JSON form of CheckpointManifest of
// proto/checkpoint.proto, made without protobuf, so that whoever uses
// checkpoints stays free of it. It is one line. The last member is a checksum
// of all before it, so that a flipped bit cannot pass for another number. Bytes
// of texts that are not UTF-8 become U+FFFD: whoever writes a manifest reads it
// back before (checkpoint_folder.cc).
std::string CheckpointManifestJson(const CheckpointManifest& manifest);

// The reverse. DATA_LOSS: not JSON, or the checksum differs; UNIMPLEMENTED: a
// format of a later release; INVALID_ARGUMENT: a line for each field that is
// missing, of another type or out of range, alone or by
// ValidateCheckpointManifest. Members that it does not know are ignored.
absl::StatusOr<CheckpointManifest> ParseCheckpointManifest(
    absl::string_view text);

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_MANIFEST_H_
