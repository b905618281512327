// What the coordinator says of rounds and of the job, as the client's plain
// values. Apart from the session, which decides what follows from it.
#ifndef AGG_WORKER_CLIENT_JOB_MESSAGES_H_
#define AGG_WORKER_CLIENT_JOB_MESSAGES_H_

#include <optional>

#include "proto/agg.pb.h"
#include "worker_client/client_event.h"
#include "worker_client/client_types.h"

namespace agg {

RoundOutcome OutcomeOf(const v1::RoundOutcome& message);

// Nothing for RENEWED, and for a kind that a later version of the protocol has.
std::optional<ClientEvent::Kind> KindOf(const v1::JobEvent& event);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_JOB_MESSAGES_H_
