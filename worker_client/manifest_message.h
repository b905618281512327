// Manifest from and to its message.
#ifndef AGG_WORKER_CLIENT_MANIFEST_MESSAGE_H_
#define AGG_WORKER_CLIENT_MANIFEST_MESSAGE_H_

#include "proto/agg.pb.h"
#include "proto/shard_plan.h"

namespace agg {

v1::Manifest ToMessage(const Manifest& manifest);
Manifest FromMessage(const v1::Manifest& message);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_MANIFEST_MESSAGE_H_
