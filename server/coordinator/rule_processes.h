// The processes that decide external rules (P52): who asks for which rule's
// rounds, the question that is open, and its answer.
#ifndef AGG_SERVER_COORDINATOR_RULE_PROCESSES_H_
#define AGG_SERVER_COORDINATOR_RULE_PROCESSES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/combine/combination_rule.h"
#include "server/combine/compacted_round.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "server/round/rule_process_status.h"

namespace agg {

// What a round's workers have told of it that no Gram matrix has.
struct RoundWords {
  uint64_t epoch = 0;
  uint64_t round = 0;
  // The model's tensors by name, in the manifest's order.
  std::shared_ptr<const std::vector<std::string>> tensors;
  std::vector<double> losses;  // of the committed rows; NaN: not sent
};

// A round as the process of an external rule gets it: a plain value.
struct RuleQuestion {
  struct Segment {
    std::string tensor;        // its name; "": the whole model
    std::vector<double> gram;  // packed upper triangle, row by row
    std::string state;         // RuleState::bytes before the round
  };
  uint64_t number = 0;  // names it; set by Ask
  std::string name;     // ExternalOptions::name
  uint64_t epoch = 0;
  uint64_t round = 0;
  bool shadow = false;
  // Why a step_scale other than 1 is refused; "": it is not.
  std::string no_step_scale;
  std::vector<RowInfo> rows;   // P, kept, in the order of the ranks
  std::vector<double> losses;  // P; NaN: not sent
  std::vector<Segment> segments;
};

// Makes the question about a round's kept rows. `states`: the rule's, by
// segment, or empty. RESOURCE_EXHAUSTED: it would not fit into a message.
// REQUIRES: a kept row, and options.rule or a shadow of it is `rule`.
absl::StatusOr<RuleQuestion> MakeQuestion(const CombineOptions& options,
                                          const RuleOptions& rule,
                                          const CompactedRound& round,
                                          absl::Span<const RuleState> states,
                                          const RoundWords& words);

// What a process says of the question that it had.
struct RuleAnswer {
  uint64_t question = 0;
  std::string error;  // why there is none, in its words; "": there is one
  std::vector<ExternalSegment> segments;
  double step_scale = 1.0;
};

// A process asks for the next round of its rule.
struct RulePoll {
  std::string name;                  // ExternalOptions::name
  uint64_t process = 0;              // random: one life of the process
  std::string client;                // for people, "host:pid"
  std::string identity;              // P45
  std::optional<RuleAnswer> answer;  // to its last question
};

// Processes poll, rounds ask. Thread-safe. No callback is called with a lock
// held.
//
// One process has each rule: the newest that has polled. One that it has
// replaced hears so (ABORTED), so that two do not take turns. A process is
// absent when a round has waited for it in vain, until it polls again: rounds
// do not wait for one that is absent.
class RuleProcesses {
 public:
  // A process that polled so lately is there, for who looks at the status.
  static constexpr absl::Duration kThere = absl::Seconds(5);

  using Give =
      std::function<void(absl::StatusOr<std::shared_ptr<const RuleQuestion>>)>;

  // `clock` outlives it. Processes may ask for the names of `options`: that of
  // its rule, which may become an external one (SetRule), and those of its
  // external shadow rules. External rules are in Status() from the start,
  // without a process.
  RuleProcesses(const Clock* clock, const CombineOptions& options);

  // Waits for the next question and gives it, or an error, once. An answer to
  // a question that is over is dropped and counted; one that is repeated does
  // nothing. A process that polls without an answer to the open question gets
  // that one again. Errors: INVALID_ARGUMENT (no such name; the answer does not
  // fit, and the round has its fallback), ABORTED (replaced), UNAVAILABLE
  // (stopped). Returns a number for CancelPoll, or 0.
  uint64_t Poll(RulePoll poll, Give give);
  // Ends a poll whose caller has gone: its `give` is not called.
  void CancelPoll(uint64_t number);

  // Asks, and waits for the answer for at most `timeout`, or until `over` says
  // that nobody needs it; null: it never does. `over` is called again and again
  // without this object's lock, and at once after CheckDeadlines. The answer's
  // `missing` says why there is none. Blocks; one question at a time for each
  // name.
  ExternalAnswer Ask(RuleQuestion question, absl::Duration timeout,
                     const std::function<bool()>& over);
  // The answer about a round for which no question could be made.
  ExternalAnswer NotAsked(const std::string& name, const absl::Status& reason);

  // Has waits look at the clock, and whether they are over.
  void CheckDeadlines();
  // Ends all waits, now and later.
  void Stop();

  // Returns how each rule stands, in the order of the names.
  std::vector<RuleProcessStatus> Status() const;

 private:
  // One rule.
  struct Place {
    uint64_t process = 0;  // 0: none has polled
    std::string client, identity;
    absl::Time seen = absl::InfinitePast();
    bool absent = false;
    std::deque<uint64_t> replaced;  // former processes, the last ones
    uint64_t poll = 0;              // that waits; 0: none
    Give give;
    std::shared_ptr<const RuleQuestion> question;  // null: none is open
    std::optional<ExternalAnswer> answer;          // to it
    uint64_t last_answered = 0;                    // question
    RuleProcessStatus counts;
  };
  // A call that is to be made without the lock.
  using Calls = std::vector<std::function<void()>>;

  absl::StatusOr<Place*> PlaceOf(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Enter(const RulePoll& poll, Place* place, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeAnswer(RulePoll* poll, Place* place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the poll that waits with an error.
  void EndPoll(const absl::Status& reason, Place* place, Calls* calls)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits a moment for the answer; whether to look again.
  bool WaitOn(const std::string& name, bool is_over, absl::Time deadline);
  ExternalAnswer Missing(const std::string& name, std::string why, Place* place)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::set<std::string> names_;  // that may be asked for
  std::map<std::string, Place> places_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_question_ ABSL_GUARDED_BY(mutex_);  // begins at random
  uint64_t last_poll_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_RULE_PROCESSES_H_
