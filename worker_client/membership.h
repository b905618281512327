// A client's place in its job, from epoch to epoch: the present view, how the
// next one is got, and the end of it all.
#ifndef AGG_WORKER_CLIENT_MEMBERSHIP_H_
#define AGG_WORKER_CLIENT_MEMBERSHIP_H_

#include <grpcpp/channel.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/base/tick_clock.h"
#include "worker_client/cancel_source.h"
#include "worker_client/client_types.h"
#include "worker_client/job_view.h"
#include "worker_client/lease_keeper.h"
#include "worker_client/retry.h"

namespace agg {

// A worker's lease is kept by a thread of its own, which also resumes when the
// epoch ends, in the midst of a long computation, too. An observer, and a
// worker whose job has finished, resume in the call that needs it. Thread-safe.
class Membership {
 public:
  using View = std::shared_ptr<const JobView>;

  // Waits for the coordinator up to options.connect_timeout. `clock` measures
  // recovery_window and the lease (P31), and outlives this.
  static absl::StatusOr<std::unique_ptr<Membership>> Open(
      const ClientOptions& options, const Clock* clock = TickClock::Real());
  ~Membership();

  View view() const;
  absl::Status fate() const { return fate_.status(); }  // OK: not over yet
  bool finished() const { return finished_; }
  void NoteFinished() { finished_ = true; }
  bool draining() const { return draining_; }

  // Calls `call` with the present view, and again with the next one each time
  // its epoch has ended, for recovery_window from each loss and until `limit`.
  // Returns its last status, the limit's reason, or the fate.
  absl::Status Persist(const CallLimit& limit,
                       const std::function<absl::Status(const View&)>& call);

  // Notes that the worker has the parameters of `version`. False, and no
  // effect: the epoch has ended, so that they may be of a past that was given
  // up.
  bool NoteHeld(const JobView& view, uint64_t version);
  Standing standing(const JobView& view) const;
  // Returns OK if the worker may push in `view`, else FAILED_PRECONDITION with
  // what to do.
  absl::Status CheckStanding(const JobView& view) const;
  // Notes which epoch made a version, as far as it is heard; 0: not known.
  void NoteMade(uint64_t version, uint64_t made);

  // Returns a call's error; where a job is not waited for and the coordinator
  // had said that it shuts down, that in place of a lost connection.
  absl::Status Explain(const absl::Status& status) const;

  // Lets nothing resume from here on; false: it was called before.
  bool BeginToLeave() { return !leaving_.exchange(true); }
  // Ends all calls with `reason`, unless they have one, and the thread.
  void End(const absl::Status& reason);

 private:
  Membership(const ClientOptions& options, const Clock* clock);

  void Attend();  // starts the lease's thread
  // Called on the lease's thread when the lease of the present view is lost.
  // Returns what is to be held next.
  absl::optional<Lease> OnLost(const absl::Status& why);
  void OnEvent(const v1::JobEvent& event);

  // Whether a call that failed so may succeed in another epoch.
  bool MayBeOver(const JobView& view, const absl::Status& status);
  // Waits, 2 s by the clock, until the fate or the call is decided.
  void AwaitReason(const CallLimit& limit);
  // Waits, and ends with the reason if the fate or the call is decided.
  absl::Status Pause(absl::Duration pause, const CallLimit& limit);
  // Waits until view() is another one than `view`: OK.
  absl::Status AwaitNext(const View& view, const CallLimit& limit,
                         RecoveryWindow* window);
  // Gets in again and replaces `view`, unless that has happened meanwhile.
  absl::Status Resume(const View& view, absl::Time deadline,
                      RecoveryWindow* window);
  void Replace(const View& next, const HeldVersion& held);
  void EndAttendance();  // no thread resumes any more
  void Say(ClientEvent::Kind kind, uint64_t version, std::string message) const;
  void Finalize(const absl::Status& reason);  // End, but for the thread

  const ClientOptions options_;
  const ShardName name_;
  const Clock* const clock_;
  CancelSource fate_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> finished_{false};
  std::atomic<bool> leaving_{false};

  Mutex resume_mutex_;  // held while one thread resumes
  std::shared_ptr<grpc::Channel> coordinator_ ABSL_GUARDED_BY(resume_mutex_);
  RecoveryWindow outage_;  // the lease's thread's alone, as the next one
  absl::Time resumed_at_;

  mutable Mutex mutex_;
  CondVar changed_;  // view_, attended_, fate_
  View view_ ABSL_GUARDED_BY(mutex_);
  bool attended_ ABSL_GUARDED_BY(mutex_) = false;  // by a thread that resumes
  HeldVersion held_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, uint64_t> made_ ABSL_GUARDED_BY(mutex_);  // by version

  Mutex keeper_mutex_;
  std::unique_ptr<LeaseKeeper> keeper_ ABSL_GUARDED_BY(keeper_mutex_);
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_MEMBERSHIP_H_
