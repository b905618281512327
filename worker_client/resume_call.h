// How a client gets in again after the end of an epoch (P26). Apart from
// join_call.h because here it has something to lose: its session, and what it
// knows of its parameters.
#ifndef AGG_WORKER_CLIENT_RESUME_CALL_H_
#define AGG_WORKER_CLIENT_RESUME_CALL_H_

#include <grpcpp/channel.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/agg.pb.h"
#include "server/base/clock.h"
#include "worker_client/cancel_source.h"
#include "worker_client/client_types.h"
#include "worker_client/job_view.h"
#include "worker_client/retry.h"
#include "worker_client/rpc_status.h"
#include "worker_client/wait_report.h"

namespace agg {

// Who comes back. REQUIRES: what is pointed to outlives the call.
struct Returner {
  const ClientOptions* options = nullptr;
  ShardName coordinator;
  uint64_t session = 0;
  HeldVersion held;
  // It needs no session any more: an observer, or the job has finished.
  bool observes = false;
  CancelSource* fate = nullptr;  // ends the call with its reason
  absl::Time deadline = absl::InfiniteFuture();  // the system's time; likewise
  const Clock* clock = nullptr;                  // of the window
};

// What a coordinator that is frozen, or does not exist any more behind an old
// address, may take for an answer; more than a Join's 30 s for memory (P32).
inline constexpr absl::Duration kResumeCallTimeout = absl::Seconds(40);

// Joins with resume_session, or asks Observe, until the coordinator answers or
// the window ends; `report` hears why it has not. *channel is replaced by a new
// one if it gives no answer at all. `session` of the reply is the returner's
// where it needs none. Errors: the fate's reason; what ends a Join for good
// (ABORTED: superseded, evicted; INVALID_ARGUMENT); DEADLINE_EXCEEDED; at the
// window's end the last failure, which says for what it was tried.
absl::StatusOr<v1::JoinReply> ResumeJob(const Returner& returner,
                                        std::shared_ptr<grpc::Channel>* channel,
                                        RecoveryWindow* window,
                                        WaitReport* report);

// `failure`, with the time that was spent on it.
absl::Status TriedForRecovery(const absl::Status& failure,
                              const ClientOptions& options);

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_RESUME_CALL_H_
