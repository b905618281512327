// A client's calls to the coordinator in one epoch, and what a person hears of
// their outcomes; which epoch that is, and what follows when it ends, is
// Membership's business.
#ifndef AGG_WORKER_CLIENT_COORDINATOR_SESSION_H_
#define AGG_WORKER_CLIENT_COORDINATOR_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/agg.grpc.pb.h"
#include "server/base/mutex.h"
#include "worker_client/client_types.h"
#include "worker_client/job_view.h"
#include "worker_client/membership.h"
#include "worker_client/retry.h"
#include "worker_client/row_ledger.h"

namespace agg {

// What a person wants to hear of rounds that went otherwise than expected.
// Tells the first round that was skipped, and the first that has left out the
// row of each rank; counts the others for the end. Thread-safe.
class OutcomeWatch {
 public:
  // What is new; each is one line: "round 3 was skipped: .." or "round 3 has
  // left out the row of rank 1: ..". A round that was noted before: nothing.
  std::vector<std::string> Note(const RoundOutcome& outcome);
  // "40 of 43 rounds were skipped, 2 have left out the row of rank 1"; "": no
  // more than Note has told.
  std::string Summary() const;

 private:
  mutable Mutex mutex_;
  uint64_t next_round_ ABSL_GUARDED_BY(mutex_) = 0;  // that was not noted
  uint64_t num_rounds_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_skipped_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, uint64_t> num_left_out_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::set<int> told_ ABSL_GUARDED_BY(mutex_);  // ranks that were named
};

// Names a call of a reduction and says what it gives, as ReduceRequest of
// proto/reduction.proto has it.
struct ReductionCall {
  uint64_t giver = 0;
  uint64_t call = 0;
  std::string what;
  std::vector<double> values;
  bool withdraw = false;
};

// Calls are idempotent and retried by themselves while a broken connection may
// recover; each ends with its view. Thread-safe.
class CoordinatorSession {
 public:
  // `membership` outlives it.
  CoordinatorSession(const ClientOptions& options, Membership* membership);

  // Commits a row; fills in epoch and session. `traceparent` as in PushInfo.
  absl::StatusOr<RoundOutcome> Commit(const JobView& view,
                                      v1::CommitRequest request,
                                      const CallLimit& limit,
                                      const std::string& traceparent = "");
  // Notes the outcome of a commit that came another way (P41); returns what
  // Commit would return.
  RoundOutcome Note(const JobView& view, const v1::RoundOutcome& reply);
  // Waits for the outcome of a round. `row`: what its `included` tells about;
  // RowName(): nothing.
  absl::StatusOr<RoundOutcome> WaitRound(const JobView& view, uint64_t round,
                                         const RowName& row,
                                         const CallLimit& limit);
  // Has a reduction's sums, or for whom it waits, or neither.
  struct Reduced {
    Reduction made;
    bool withdrawn = false;
    std::vector<int> waiting_for;
    std::string note;  // what those have asked for instead
  };
  // Asks once: ends after some seconds with whom it waits for.
  absl::StatusOr<Reduced> Reduce(const JobView& view, const ReductionCall& call,
                                 const CallLimit& limit);
  // Returns the job's newest version; FAILED_PRECONDITION while it has none.
  // ABORTED: the view's epoch has ended, which the view knows from then on.
  absl::StatusOr<uint64_t> LatestVersion(const JobView& view);
  // Tells the coordinator, within call_timeout, that the worker leaves.
  absl::Status Leave(const JobView& view);

 private:
  void Say(uint64_t version, std::string message) const;
  // Returns OK while neither the view nor the call is over, else why.
  static absl::Status Over(const JobView& view, const CallLimit& limit);
  // Waits until the channel is connected; at most until limit's end, or Over.
  absl::Status AwaitConnection(const JobView& view, const CallLimit& limit);
  // Makes a call named `name`, again after connection losses.
  absl::Status Call(
      const JobView& view, absl::string_view name, const CallLimit& limit,
      const std::function<grpc::Status(grpc::ClientContext*)>& call);

  const ClientOptions options_;
  const ShardName name_;
  Membership* const membership_;
  OutcomeWatch watch_;
};

}  // namespace agg

#endif  // AGG_WORKER_CLIENT_COORDINATOR_SESSION_H_
