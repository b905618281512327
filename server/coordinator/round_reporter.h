// What comes after a round whose workers have their answers: its statistics,
// and its report to metrics, pages and logs.
#ifndef AGG_SERVER_COORDINATOR_ROUND_REPORTER_H_
#define AGG_SERVER_COORDINATOR_ROUND_REPORTER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/mutex.h"
#include "server/combine/combination_rule.h"
#include "server/combine/compacted_round.h"
#include "server/combine/options.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/job_state.h"
#include "server/coordinator/rule_processes.h"
#include "server/round/recovery.h"
#include "server/round/round_report.h"

namespace agg {

// Adds to the engine's report what only the coordinator knows: how long the
// round waited, when each row was committed, when the round ended, and remarks
// in its message.
void CompleteReport(const ClosingRound& round, absl::Time finished_at,
                    RoundReport* report);

// The outcome as a session without a row in it sees it (`included` is false).
RoundResult OutcomeOf(const RoundReport& report);

// The rounds that have ended lately, for people and tools that ask: of all
// epochs of this process. Thread-compatible.
class RecentRounds {
 public:
  static constexpr int kNumKept = 256;

  void Add(const RoundReport& report, RoundResult outcome);

  // Oldest first, kNumKept at most.
  std::vector<RoundResult> outcomes() const {
    return {outcomes_.begin(), outcomes_.end()};
  }
  std::optional<RoundResult> last_outcome() const;
  // How orthogonal the rows of the last round were, tensor by tensor in the
  // manifest's order; empty before the first round.
  const std::vector<double>& tensor_orthogonality() const {
    return tensor_orthogonality_;
  }

 private:
  std::deque<RoundResult> outcomes_;
  std::vector<double> tensor_orthogonality_;
};

// What the statistics of a round are computed from.
struct RoundFacts {
  CombineOptions combine;
  std::vector<RuleState> rule_before;  // the applied rule's, before the round
  CompactedRound rows;
  RoundWords words;  // for shadow rules that are external
};

// Reports go out in the order of the rounds, one at a time. At most one round
// is behind: its Grams are as large as those of the round in execution, and
// there is no room for more. Used by one thread, besides its own.
class RoundReporter {
 public:
  using Callback = std::function<void(const RoundReport&)>;

  // `on_report` may be null. Reports of versions that are a multiple of
  // `tensor_grams_every` have RoundStatistics::tensor_grams; 0: none has.
  explicit RoundReporter(Callback on_report, uint64_t tensor_grams_every = 0);
  // Reports what is left.
  ~RoundReporter();
  RoundReporter(const RoundReporter&) = delete;
  RoundReporter& operator=(const RoundReporter&) = delete;

  // Asks the process of an external rule, as RoundEngine::AskRule does; null:
  // every answer is missing. It may block, and then so does Add. Before Start.
  using AskRule = std::function<ExternalAnswer(
      const CombineOptions& options, const RuleOptions& rule,
      const CompactedRound& round, absl::Span<const RuleState> states,
      const RoundWords& words)>;
  void SetAskRule(AskRule ask_rule) { ask_rule_ = std::move(ask_rule); }

  // Starts a thread, which computes and calls back from now on. Without it, Add
  // does both.
  void Start();

  // Takes the next round. Waits while the one before it has not been reported.
  void Add(RoundFacts facts, RoundReport report);
  // Names the version of the last round that was added.
  const VersionId& newest() const { return newest_; }
  // Waits until everything has been reported.
  void Flush();

  // Returns what shadow rules remember after the last round that was added;
  // waits for its report.
  std::vector<std::vector<RuleState>> ShadowRules();
  // Sets what they go on with.
  void SetShadowRules(std::vector<std::vector<RuleState>> states);

 private:
  struct Round {
    RoundFacts facts;
    RoundReport report;
  };

  void Loop();
  void Finish(Round round);
  // Has the processes of shadow rules that are external answer about a round.
  void AskShadows(const RoundReport& report, RoundFacts* facts);

  const Callback on_report_;
  const uint64_t tensor_grams_every_;
  AskRule ask_rule_;
  VersionId newest_;
  // States of the shadow rules. Used by the thread that computes, and between
  // two rounds.
  std::vector<std::vector<RuleState>> shadow_rules_;

  Mutex mutex_;
  CondVar changed_;
  std::optional<Round> next_ ABSL_GUARDED_BY(mutex_);  // not begun
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;          // one is not reported
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace agg

#endif  // AGG_SERVER_COORDINATOR_ROUND_REPORTER_H_
