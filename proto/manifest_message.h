// A manifest as its message, and back: what a worker sends, and what servers
// and other workers make of it. Nothing is checked (ValidateManifest does) and
// nothing is lost.
#ifndef AGG_PROTO_MANIFEST_MESSAGE_H_
#define AGG_PROTO_MANIFEST_MESSAGE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/agg.pb.h"
#include "proto/manifest_size.h"
#include "proto/shard_plan.h"

namespace agg {

v1::Manifest ToProto(const Manifest& manifest);
Manifest FromProto(const v1::Manifest& message);

// Returns the size of the manifest that `message`, a Manifest's bytes, would be
// parsed to, or more: nothing is made of it yet. INVALID_ARGUMENT if it is
// malformed.
absl::StatusOr<ManifestSize> SizeOfMessage(absl::string_view message);

}  // namespace agg

#endif  // AGG_PROTO_MANIFEST_MESSAGE_H_
