// manifest.json: a manifest as text, and back. The text is the JSON form of
// CheckpointManifest of proto/checkpoint.proto, made without protobuf, so that
// whoever uses checkpoints stays free of it.
#ifndef AGG_SERVER_CHECKPOINT_CHECKPOINT_JSON_H_
#define AGG_SERVER_CHECKPOINT_CHECKPOINT_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/checkpoint/checkpoint_manifest.h"

namespace agg {

// One line. The last member is a checksum of all before it, so that a flipped
// bit cannot pass for another number. Bytes of texts that are not UTF-8 become
// U+FFFD: whoever writes a manifest reads it back before
// (checkpoint_folder.cc).
std::string CheckpointManifestJson(const CheckpointManifest& manifest);

// The reverse. DATA_LOSS: not JSON, or the checksum differs; UNIMPLEMENTED: a
// format of a later release; INVALID_ARGUMENT: a line for each field that is
// missing, of another type or out of range, alone or by
// ValidateCheckpointManifest. Members that it does not know are ignored.
absl::StatusOr<CheckpointManifest> ParseCheckpointManifest(
    absl::string_view text);

}  // namespace agg

#endif  // AGG_SERVER_CHECKPOINT_CHECKPOINT_JSON_H_
