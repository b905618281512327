// A manifest as its message, and back: what a worker sends, and what servers
// and other workers make of it. Nothing is checked (ValidateManifest does) and
// nothing is lost.
#ifndef AGG_PROTO_MANIFEST_MESSAGE_H_
#define AGG_PROTO_MANIFEST_MESSAGE_H_

#include "proto/agg.pb.h"
#include "proto/shard_plan.h"

namespace agg {

v1::Manifest ToProto(const Manifest& manifest);
Manifest FromProto(const v1::Manifest& message);

}  // namespace agg

#endif  // AGG_PROTO_MANIFEST_MESSAGE_H_
