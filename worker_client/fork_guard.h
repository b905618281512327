// Says whether a client can work in this process at all.
#ifndef AGG_WORKER_CLIENT_FORK_GUARD_H_
#define AGG_WORKER_CLIENT_FORK_GUARD_H_

#include "absl/status/status.h"

namespace agg {

// FAILED_PRECONDITION, naming both, in a fork of a process that has connected a
// client: gRPC's threads stay behind, and a call would wait for them for ever.
// OK elsewhere. Thread-safe.
absl::Status CheckNotForked();

// Remembers that this process connects a client. REQUIRES: CheckNotForked().
void NoteConnecting();

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_FORK_GUARD_H_
