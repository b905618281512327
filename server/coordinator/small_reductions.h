// Small sums over all workers beside the model (P51): who has given what, when
// a reduction is made, and what is kept of those that are. Decides by plain
// values; no clock, no thread.
#ifndef AGG_SERVER_COORDINATOR_SMALL_REDUCTIONS_H_
#define AGG_SERVER_COORDINATOR_SMALL_REDUCTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/coordinator/deferred_calls.h"
#include "server/coordinator/kept_reduction.h"

namespace agg {

// A worker gives its values, and waits for the sums.
struct ReduceCall {
  uint64_t session = 0;
  uint64_t version = 0;
  uint32_t number = 0;
  std::string what;
  std::vector<double> values;
};

// As ReduceReply of proto/reduction.proto has it.
struct ReduceAnswer {
  std::vector<double> sums;
  std::vector<int32_t> ranks;
  std::vector<int32_t> left_out;
  std::vector<int32_t> waiting_for;
};

// Thread-compatible. At most one reduction is open: a worker goes on when it
// has the sums, and so none is at the next one before all are done with this
// one. Each `done` is called once, by the DeferredCalls that a method returns
// or by who takes it with TakeMade, unless it is removed.
class SmallReductions {
 public:
  using Done = std::function<void(absl::StatusOr<ReduceAnswer>)>;
  static constexpr size_t kMaxValues = 8192;
  static constexpr size_t kMaxWhatBytes = 4096;
  // Those of the newest version are kept, the newest ones: so many, and
  // kMaxValues values in all.
  static constexpr size_t kMaxKept = 16;
  // After that a call is told who is waited for.
  static constexpr absl::Duration kAskAgain = absl::Seconds(2);

  // A worker that is in.
  struct Member {
    int32_t rank = 0;
    uint64_t first_round = 0;
    bool committed = false;  // the open round
  };
  // How the job stands.
  struct Job {
    uint64_t history = 0;
    uint64_t version = 0;
    // It waits no more for all of its `workers` to join.
    bool started = true;
    int32_t workers = 0;
    std::vector<Member> members;  // by rank
  };
  // A call whose sums are made.
  struct Made {
    Done done;
    ReduceAnswer answer;
  };

  // INVALID_ARGUMENT: too many values, too long a text, names nothing.
  static absl::Status Check(const ReduceCall& call);

  // Takes the values of `rank` in place of those that it gave before, and keeps
  // `done`; *number: for Remove, 0 if `done` is not kept. Then CloseIfDue
  // should be asked. Errors, to `done`: INVALID_ARGUMENT, to all callers: some
  // reduce something else, with both ranks; FAILED_PRECONDITION: the worker has
  // another version, or has missed more reductions than are kept. A worker
  // whose version's round has ended without it gets its own values. REQUIRES:
  // Check.
  DeferredCalls Add(const ReduceCall& call, int32_t rank, const Job& job,
                    absl::Time now, Done done, uint64_t* number);
  // Makes the open reduction if nobody is waited for; whether it did, so that
  // kept() has changed.
  bool CloseIfDue(const Job& job);
  bool Due(const Job& job) const;
  bool open() const { return open_.has_value(); }
  // Their answers are for when kept() is where no lost process takes it along.
  std::vector<Made> TakeMade();

  // The caller has gone; what it gave counts.
  void Remove(uint64_t number);
  // Tells calls that have waited for kAskAgain for whom.
  DeferredCalls AskAgain(const Job& job, absl::Time now);
  // The session is over, or the epoch: the callers get `reason`. What a
  // session gave counts; with an epoch it is forgotten, and given again.
  DeferredCalls FailSession(uint64_t session, const absl::Status& reason);
  DeferredCalls FailAll(const absl::Status& reason);

  // Oldest first.
  const std::vector<KeptReduction>& kept() const { return kept_; }
  void SetKept(std::vector<KeptReduction> kept) { kept_ = std::move(kept); }

 private:
  struct Waiter {
    uint64_t number = 0;  // 0: nobody waits
    uint64_t session = 0;
    absl::Time since;
    Done done;
  };
  struct Given {
    std::vector<double> values;
    Waiter waiter;
  };
  struct Open {
    ReductionName name;
    std::string what;
    std::map<int32_t, Given> given;  // by rank
  };

  std::vector<int32_t> WaitingFor(const Job& job) const;
  const KeptReduction* Find(const ReductionName& name) const;
  // OK: this reduction is the open one, or can be opened.
  absl::Status CheckName(const ReductionName& name, const Job& job) const;
  // OK: the values are of what the others in the open one have given.
  absl::Status CheckFits(const ReduceCall& call, int32_t rank) const;
  void Close(const Job& job);
  void Keep(KeptReduction made);

  std::optional<Open> open_;
  std::vector<KeptReduction> kept_;
  std::vector<Made> made_;
  uint64_t last_number_ = 0;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_SMALL_REDUCTIONS_H_
