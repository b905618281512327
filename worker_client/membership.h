// A client's place in its job, from epoch to epoch: the present view, how the
// next one is got, and the end of it all.
#ifndef AGG_WORKER_CLIENT_MEMBERSHIP_H_
#define AGG_WORKER_CLIENT_MEMBERSHIP_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/agg.grpc.pb.h"
#include "proto/agg.pb.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "worker_client/client_event.h"
#include "worker_client/client_types.h"
#include "worker_client/job_view.h"
#include "worker_client/retry.h"

namespace agg {

// Says for what a client waits, often enough and not too often. Tells on_event
// the reason at once, and again when it has changed. Looks at it not more often
// than each kSayAgain. Thread-compatible.
class WaitReport {
 public:
  static constexpr absl::Duration kSayAgain = absl::Seconds(5);

  // `options` outlive it.
  WaitReport(const ClientOptions& options, ClientEvent::Kind kind)
      : options_(options), kind_(kind) {}

  // Whether Say would look at a reason: otherwise none has to be found.
  bool Due(absl::Time now) const { return options_.on_event && now >= next_; }
  void Say(const std::string& reason, absl::Time now);

 private:
  const ClientOptions& options_;
  const ClientEvent::Kind kind_;
  std::string said_;
  absl::Time next_ = absl::InfinitePast();
};

// Who comes back after the end of an epoch (P26). Unlike one who joins
// by JoinJob, it has something to lose: its session, and what it knows of its
// parameters.
// REQUIRES: what is pointed to outlives the call.
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

// What people know this client by: client_name, or "host:pid".
std::string ClientName(const ClientOptions& options);

// What every Join of this client says.
v1::JoinRequest MakeJoinRequest(const ClientOptions& options);

// Gets a client in: nothing exists yet that could be lost. Joins as a worker,
// or as an observer asks for the job's description. Tries again while the
// coordinator cannot be reached or waits for its shards, at most for
// options.connect_timeout; options.on_event hears why. UNAVAILABLE with the
// last reason when the time is over, and what the coordinator answers.
absl::StatusOr<v1::JoinReply> JoinJob(const ClientOptions& options,
                                      const ShardName& coordinator,
                                      grpc::Channel* channel,
                                      v1::Coordinator::StubInterface* stub);

// What is held in one epoch.
struct Lease {
  std::shared_ptr<grpc::Channel> channel;
  uint64_t epoch = 0;
  uint64_t session = 0;
  absl::Duration duration;
  // A connection that breaks does not come back: the channel is to a socket
  // that ends with its process (P38).
  bool gone_if_broken = false;
  // Returns LeaseRenewal.transports as they are now; may be null. Called on the
  // keeper's thread.
  std::function<std::string()> transports;
  // Ends the lease with its reason, besides the end of the keeper; may be null.
  std::shared_ptr<CancelSource> over;
};

struct LeaseOptions {
  ShardName coordinator;
  Lease lease;  // the first one
  absl::Duration reconnect_window;
  // Measures the lease (P31): what this process spent frozen does not count, as
  // it does not count for the servers. Outlives the stream.
  const Clock* clock = TickClock::Real();
  // Hears every event but RENEWED, on this stream's thread.
  std::function<void(const v1::JobEvent&)> on_event;
  // Hears that a lease cannot be kept, and why. Answers, as late as it likes,
  // with the one to be kept from now on, or with nothing: the end. On this
  // stream's thread.
  std::function<absl::optional<Lease>(absl::Status)> on_lost;
};

// Renews a worker's lease and hears the job's events. Holds the Attend stream
// open from a thread of its own, which is also what polls gRPC while the
// trainer computes: every 20 ms, so that it does not stand in the way of a
// thread that waits for a call. A lease is renewed at a third of its time; a
// coordinator that answers no renewal for the time of a lease is lost, and so
// is one that cannot be reached again within the window, or that has said that
// it shuts down and ends the stream.
class LeaseKeeper {
 public:
  explicit LeaseKeeper(LeaseOptions options);
  // Ends the stream and joins the thread: soon, whatever the far end does.
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

 private:
  // Keeps the lease until it cannot; returns why.
  absl::Status Keep(const Lease& lease);
  // Returns why no renewal can be hoped for after a call that ended so; OK:
  // again.
  absl::Status GiveUp(const Lease& lease, const grpc::Status& status) const;
  void Loop();

  const LeaseOptions options_;
  absl::Time answered_;    // by the clock; the thread's alone
  bool draining_ = false;  // likewise: the coordinator said that it shuts down
  CancelSource stop_;
  std::thread thread_;  // last: runs as soon as it is made
};

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
