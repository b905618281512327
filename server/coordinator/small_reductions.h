// Decides about small sums over all workers beside the model (P51): who has
// given what, when a reduction is made, and who gets the sums of the last one.
// Decides by plain values; no clock, no thread.
#ifndef AGG_SERVER_COORDINATOR_SMALL_REDUCTIONS_H_
#define AGG_SERVER_COORDINATOR_SMALL_REDUCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/coordinator/job_record.h"
#include "server/coordinator/outcome_waiters.h"

namespace agg {

// A worker gives its values and waits for the sums, or takes them back.
struct ReduceCall {
  uint64_t session = 0;
  GiverCall name;
  std::string what;
  std::vector<double> values;
  bool withdraw = false;
};

// One of three: sums, `withdrawn`, or who is waited for.
struct ReduceAnswer {
  std::shared_ptr<const KeptReduction> made;
  bool withdrawn = false;
  std::vector<int32_t> waiting_for;
  std::string note;  // what some of those have asked for instead
};

// Thread-compatible. At most one reduction is open, and the last one that was
// made is kept: it needed all workers, so that none can be more than one
// behind. A worker may have one call at a time; a later one takes its place.
// Each `done` is called once, by the DeferredCalls that a method returns,
// unless it is removed.
class SmallReductions {
 public:
  using Done = std::function<void(absl::StatusOr<ReduceAnswer>)>;
  static constexpr size_t kMaxValues = 8192;
  static constexpr size_t kMaxWhatBytes = 4096;
  // A call that has waited so long is told who is waited for.
  static constexpr absl::Duration kAskAgain = absl::Seconds(2);
  // Values whose giver has not asked for so long are withdrawn.
  static constexpr absl::Duration kSilent = absl::Seconds(10);

  // A worker that is in.
  struct Member {
    int32_t rank = 0;
    uint64_t first_round = 0;
    bool committed = false;  // the open round
  };
  // How the job stands.
  struct Job {
    uint64_t version = 0;
    bool seeded = true;
    // It waits no more for all of its `workers` to join.
    bool started = true;
    int32_t workers = 0;
    std::vector<Member> members;  // by rank
  };

  // INVALID_ARGUMENT: too many values, too long a text, names nothing.
  static absl::Status Check(const ReduceCall& call);

  // Takes the values of `rank` in place of those that it gave before, and keeps
  // `done`; *number: for Remove, 0 if `done` is not kept. Then CloseIfDue and
  // TakeUnconfirmed should be asked. Errors, to `done`: INVALID_ARGUMENT:
  // others have asked for something else (both are named; the open reduction
  // stays, unless all who differ take part from a later round on only, and
  // `rank` does now: then they get the error); FAILED_PRECONDITION: the sums
  // are not kept any more, or the job is not seeded; CANCELLED: a later call
  // has come, to the former one, or the values of this one were withdrawn.
  // REQUIRES: Check.
  DeferredCalls Add(ReduceCall call, int32_t rank, const Job& job,
                    absl::Time now, Done done, uint64_t* number);
  // Makes the open reduction if nobody is waited for; whether it did, so that
  // kept() has changed.
  bool CloseIfDue(const Job& job);
  bool Due(const Job& job) const;
  bool open() const { return !given_.empty(); }

  // Answers wait until kept() is where no lost process takes it along. Whether
  // somebody has to see to that now: once, until Confirm. *serial: of kept().
  bool TakeUnconfirmed(uint64_t* serial);
  // That is so, or why it is not: the answers that waited for `serial`.
  DeferredCalls Confirm(uint64_t serial, const absl::Status& status);

  // The caller has gone: its call is withdrawn.
  void Remove(uint64_t number);
  // Tells calls that have waited for kAskAgain for whom, and withdraws what
  // nobody has asked for since kSilent.
  DeferredCalls AskAgain(const Job& job, absl::Time now);
  // The session is over, or the epoch: the callers get `reason`, and what they
  // gave is withdrawn.
  DeferredCalls FailSession(uint64_t session, const absl::Status& reason);
  DeferredCalls FailAll(const absl::Status& reason);

  // The last one that was made; null: none.
  const std::shared_ptr<const KeptReduction>& kept() const { return kept_; }
  void SetKept(std::shared_ptr<const KeptReduction> kept);

 private:
  struct Waiter {
    uint64_t number = 0;  // 0: nobody waits
    uint64_t session = 0;
    absl::Time since;  // or when it was told to ask again
    Done done;
  };
  struct Given {
    GiverCall name;
    std::string what;
    std::vector<double> values;
    Waiter waiter;
  };
  // An answer that waits for shards.
  struct Pending {
    std::shared_ptr<const KeptReduction> made;
    uint64_t serial = 0;
    Waiter waiter;
  };

  std::vector<int32_t> WaitingFor(const Job& job) const;
  // OK: the values are of what the others have given.
  absl::Status CheckFits(const ReduceCall& call, int32_t rank) const;
  static bool Fits(const ReduceCall& call, const Given& given);
  // Refuses what workers have given that take part later, if all who differ
  // from `call` are such ones.
  void MakeWay(const ReduceCall& call, int32_t rank, const Job& job,
               DeferredCalls* calls);
  void NoteOther(int32_t rank, const std::string& what, size_t count);
  // Answers a call of the kept one or one before it; whether it was one.
  bool AnswerMade(const ReduceCall& call, int32_t rank, absl::Time now,
                  Done* done, uint64_t* number, DeferredCalls* calls);
  void Close(const Job& job);
  // Withdraws the values of the call and of those before it.
  void Withdraw(const ReduceCall& call, int32_t rank, DeferredCalls* calls);
  // OK: the values of the call may be taken.
  absl::Status CheckOrder(const ReduceCall& call, int32_t rank,
                          const Job& job) const;
  // Ends a call with CANCELLED, if one waits.
  static void Replace(Waiter* waiter, const char* why, DeferredCalls* calls);

  std::map<int32_t, Given> given_;        // by rank: the open one
  std::map<int32_t, std::string> other_;  // ranks that asked for another one
  // Last call of each rank that was withdrawn: it may come after that.
  std::map<int32_t, GiverCall> withdrawn_;
  std::shared_ptr<const KeptReduction> kept_;
  uint64_t serial_ = 0;     // of kept_
  bool confirmed_ = false;  // kept_
  bool asking_ = false;
  std::map<int32_t, Pending> pending_;  // by rank
  uint64_t last_number_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_SMALL_REDUCTIONS_H_
