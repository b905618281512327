#include "server/coordinator/rule_processes.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/combine/rule_table.h"
#include "tests/server/combine/test_rows.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What Poll gives; others may wait for it.
class Given {
 public:
  RuleProcesses::Give Take() {
    return [this](absl::StatusOr<std::shared_ptr<const RuleQuestion>> given) {
      MutexLock lock(&mutex_);
      given_ = std::move(given);
      changed_.NotifyAll();
    };
  }
  absl::StatusOr<std::shared_ptr<const RuleQuestion>> Wait() {
    MutexLock lock(&mutex_);
    while (!given_.has_value()) changed_.Wait(&mutex_);
    return *given_;
  }
  bool has() {
    MutexLock lock(&mutex_);
    return given_.has_value();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::StatusOr<std::shared_ptr<const RuleQuestion>>> given_
      ABSL_GUARDED_BY(mutex_);
};

class RuleProcessesTest : public ::testing::Test {
 protected:
  RuleProcessesTest() : processes_(&clock_, MakeOptions("external")) {}

  static RuleQuestion Question(const std::string& name = "external") {
    RuleQuestion question;
    question.name = name;
    question.rows.resize(2);
    question.losses.resize(2);
    question.segments.resize(1);
    return question;
  }
  static RulePoll PollOf(uint64_t process) {
    RulePoll poll;
    poll.name = "external";
    poll.process = process;
    poll.client = "host:" + std::to_string(process);
    return poll;
  }
  static RulePoll AnswerOf(uint64_t process, uint64_t question,
                           std::vector<double> weights) {
    RulePoll poll = PollOf(process);
    poll.answer.emplace();
    poll.answer->question = question;
    poll.answer->segments = {{std::move(weights), "state"}};
    return poll;
  }
  // Asks on a thread of its own; ends when the test has the answer.
  void BeginAsk(RuleQuestion question = Question()) {
    asking_ = std::thread([this, question] {
      answer_ = processes_.Ask(question, absl::Seconds(10),
                               [this] { return over_.load(); });
    });
  }
  ExternalAnswer EndAsk() {
    asking_.join();
    return answer_;
  }
  // Until Ask has ended, whenever it begins.
  ExternalAnswer EndAskByTime() {
    std::atomic<bool> ended{false};
    std::thread clock([&] {
      while (!ended) {
        clock_.Advance(absl::Seconds(1));
        processes_.CheckDeadlines();
        std::this_thread::yield();
      }
    });
    const ExternalAnswer answer = EndAsk();
    ended = true;
    clock.join();
    return answer;
  }
  RuleProcessStatus Status() { return processes_.Status().at(0); }

  FakeClock clock_;
  RuleProcesses processes_;
  std::thread asking_;
  std::atomic<bool> over_{false};  // what was asked about
  ExternalAnswer answer_;
};

TEST_F(RuleProcessesTest, AProcessThatWaitsGetsTheQuestionAndItsAnswerCounts) {
  EXPECT_FALSE(Status().connected);
  Given first;
  EXPECT_NE(processes_.Poll(PollOf(7), first.Take()), 0u);
  EXPECT_FALSE(first.has());
  EXPECT_TRUE(Status().connected);
  EXPECT_EQ(Status().client, "host:7");
  BeginAsk();
  const auto question = first.Wait();
  ASSERT_TRUE(question.ok());
  Given next;
  processes_.Poll(AnswerOf(7, (*question)->number, {0.5, 2.0}), next.Take());
  const ExternalAnswer answer = EndAsk();
  EXPECT_EQ(answer.missing, "");
  ASSERT_EQ(answer.segments.size(), 1u);
  EXPECT_THAT(answer.segments[0].weights, ElementsAre(0.5, 2.0));
  EXPECT_EQ(answer.segments[0].state, "state");
  EXPECT_EQ(Status().answers, 1u);
  EXPECT_EQ(Status().missing_answers, 0u);
  // It waits for the next one already.
  EXPECT_FALSE(next.has());
}

TEST_F(RuleProcessesTest, AProcessThatComesWhileARoundWaitsGetsIt) {
  BeginAsk();
  Given given;
  processes_.Poll(PollOf(7), given.Take());
  const auto question = given.Wait();
  ASSERT_TRUE(question.ok());
  // The same again, as after a broken connection, until it is answered.
  Given again;
  processes_.Poll(PollOf(7), again.Take());
  EXPECT_EQ((*again.Wait())->number, (*question)->number);
  Given next;
  processes_.Poll(AnswerOf(7, (*question)->number, {1.0, 1.0}), next.Take());
  EXPECT_EQ(EndAsk().missing, "");
  // A repeated answer is no late one.
  Given repeated;
  processes_.Poll(AnswerOf(7, (*question)->number, {1.0, 1.0}),
                  repeated.Take());
  EXPECT_EQ(Status().late_answers, 0u);
  EXPECT_TRUE(absl::IsCancelled(next.Wait().status()));
}

TEST_F(RuleProcessesTest, ARoundWaitsOnceForAProcessThatIsNotThere) {
  BeginAsk();
  EXPECT_THAT(EndAskByTime().missing,
              HasSubstr("no process has asked for rounds within 10s"));
  // Not again, until one comes.
  EXPECT_THAT(processes_.Ask(Question(), absl::Hours(1), nullptr).missing,
              HasSubstr("since the last one that waited for it"));
  EXPECT_EQ(Status().missing_answers, 2u);
  EXPECT_FALSE(Status().connected);
  Given given;
  processes_.Poll(PollOf(7), given.Take());
  EXPECT_TRUE(Status().connected);
  BeginAsk();
  ASSERT_TRUE(given.Wait().ok());
  Given next;
  processes_.Poll(AnswerOf(7, (*given.Wait())->number, {1.0, 1.0}),
                  next.Take());
  EXPECT_EQ(EndAsk().missing, "");
}

TEST_F(RuleProcessesTest, ALateAnswerIsDroppedAndCounted) {
  Given given;
  processes_.Poll(PollOf(7), given.Take());
  BeginAsk();
  const uint64_t late = (*given.Wait())->number;
  EXPECT_EQ(EndAskByTime().missing, "process host:7 has not answered in 10s");
  EXPECT_FALSE(Status().connected);
  Given next;
  processes_.Poll(AnswerOf(7, late, {1.0, 1.0}), next.Take());
  EXPECT_EQ(Status().late_answers, 1u);
  EXPECT_EQ(Status().answers, 0u);
  // It is asked about the next round as before.
  BeginAsk();
  const auto question = next.Wait();
  ASSERT_TRUE(question.ok());
  EXPECT_NE((*question)->number, late);
  Given last;
  processes_.Poll(AnswerOf(7, (*question)->number, {1.0, 1.0}), last.Take());
  EXPECT_EQ(EndAsk().missing, "");
}

TEST_F(RuleProcessesTest, AnAnswerThatDoesNotFitIsRefusedByName) {
  RuleQuestion question = Question();
  question.no_step_scale = "1, since the test says so";
  const auto refuse = [&](const std::function<void(RuleAnswer*)>& change,
                          const std::string& why) {
    Given given;
    processes_.Poll(PollOf(7), given.Take());
    BeginAsk(question);
    RulePoll poll = AnswerOf(7, (*given.Wait())->number, {1.0, 1.0});
    change(&*poll.answer);
    Given refused;
    EXPECT_EQ(processes_.Poll(poll, refused.Take()), 0u);
    const absl::Status status = refused.Wait().status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    const ExternalAnswer answer = EndAsk();
    EXPECT_THAT(answer.missing, HasSubstr("its answer is refused: " + why));
    EXPECT_TRUE(answer.segments.empty());
  };
  refuse([](RuleAnswer* answer) { answer->segments[0].weights.pop_back(); },
         "segments[0].weights is 1 weights; allowed: 2");
  refuse(
      [](RuleAnswer* answer) {
        answer->segments[0].weights[1] =
            std::numeric_limits<double>::infinity();
      },
      "segments[0].weights[1] is inf; allowed: finite");
  refuse([](RuleAnswer* answer) { answer->step_scale = 2.0; },
         "step_scale is 2; allowed: 1, since the test says so");
  EXPECT_EQ(Status().missing_answers, 3u);
}

TEST_F(RuleProcessesTest, AFunctionThatFailsEndsTheWaitAtOnce) {
  Given given;
  processes_.Poll(PollOf(7), given.Take());
  BeginAsk();
  RulePoll poll = PollOf(7);
  poll.answer.emplace();
  poll.answer->question = (*given.Wait())->number;
  poll.answer->error = "ValueError: " + std::string(5000, 'x');
  Given next;
  EXPECT_NE(processes_.Poll(poll, next.Take()), 0u);
  const ExternalAnswer answer = EndAsk();
  EXPECT_THAT(answer.missing, HasSubstr("its function failed: ValueError: xx"));
  EXPECT_LT(answer.missing.size(), 1100u);
}

TEST_F(RuleProcessesTest, TheNewestProcessReplacesTheOthers) {
  Given old;
  processes_.Poll(PollOf(7), old.Take());
  Given fresh;
  processes_.Poll(PollOf(8), fresh.Take());
  EXPECT_TRUE(absl::IsAborted(old.Wait().status()));
  EXPECT_THAT(std::string(old.Wait().status().message()),
              HasSubstr("superseded: rule \"external\" is decided by process "
                        "host:8 now"));
  // It does not come back, so that two do not take turns.
  Given again;
  EXPECT_EQ(processes_.Poll(PollOf(7), again.Take()), 0u);
  EXPECT_TRUE(absl::IsAborted(again.Wait().status()));
  EXPECT_FALSE(fresh.has());
  EXPECT_EQ(Status().client, "host:8");
}

TEST_F(RuleProcessesTest, APollWhoseCallerHasGoneIsNotAnswered) {
  Given gone;
  processes_.CancelPoll(processes_.Poll(PollOf(7), gone.Take()));
  EXPECT_TRUE(Status().connected);  // it asks again in a moment
  clock_.Advance(RuleProcesses::kThere);
  EXPECT_FALSE(Status().connected);
  BeginAsk();
  Given given;
  processes_.Poll(PollOf(7), given.Take());
  const auto question = given.Wait();
  ASSERT_TRUE(question.ok());
  EXPECT_FALSE(gone.has());
  Given next;
  processes_.Poll(AnswerOf(7, (*question)->number, {1.0, 1.0}), next.Take());
  EXPECT_EQ(EndAsk().missing, "");
}

TEST_F(RuleProcessesTest, StopEndsAllWaits) {
  Given given;
  processes_.Poll(PollOf(7), given.Take());
  BeginAsk();
  ASSERT_TRUE(given.Wait().ok());
  processes_.Stop();
  EXPECT_EQ(EndAsk().missing, "the coordinator stops");
  EXPECT_EQ(processes_.Ask(Question(), absl::Hours(1), nullptr).missing,
            "the coordinator stops");
}

TEST_F(RuleProcessesTest, StopEndsAPollThatWaits) {
  Given given;
  processes_.Poll(PollOf(7), given.Take());
  processes_.Stop();
  EXPECT_TRUE(absl::IsUnavailable(given.Wait().status()));
}

// The clock stands: only the epoch's end can end it.
TEST_F(RuleProcessesTest, ARoundOfAnEpochThatIsOverWaitsForNobody) {
  Given given;
  processes_.Poll(PollOf(7), given.Take());
  BeginAsk();
  ASSERT_TRUE(given.Wait().ok());
  over_ = true;
  processes_.CheckDeadlines();
  EXPECT_EQ(EndAsk().missing, "the epoch is over");
  // The process had its time yet, and so has the next round's.
  EXPECT_TRUE(Status().connected);
  over_ = false;
  BeginAsk();
  Given next;
  processes_.Poll(PollOf(7), next.Take());
  const auto question = next.Wait();
  ASSERT_TRUE(question.ok());
  Given last;
  processes_.Poll(AnswerOf(7, (*question)->number, {1.0, 1.0}), last.Take());
  EXPECT_EQ(EndAsk().missing, "");
}

TEST_F(RuleProcessesTest, NamesAreChecked) {
  RulePoll poll = PollOf(7);
  poll.name = "a b";
  Given bad;
  processes_.Poll(poll, bad.Take());
  EXPECT_TRUE(absl::IsInvalidArgument(bad.Wait().status()));
  Given nobody;
  processes_.Poll(PollOf(0), nobody.Take());
  EXPECT_TRUE(absl::IsInvalidArgument(nobody.Wait().status()));
  RulePoll long_one = PollOf(7);
  long_one.client = std::string(513, 'x');
  Given refused;
  processes_.Poll(long_one, refused.Take());
  EXPECT_TRUE(absl::IsInvalidArgument(refused.Wait().status()));
  // Nobody would ever ask it about a round, and it would wait for ever.
  poll.name = "extrenal";
  Given mistyped;
  EXPECT_EQ(processes_.Poll(poll, mistyped.Take()), 0u);
  EXPECT_TRUE(absl::IsInvalidArgument(mistyped.Wait().status()));
  EXPECT_EQ(mistyped.Wait().status().message(),
            "name is \"extrenal\"; allowed: \"external\"");
  EXPECT_EQ(processes_.Status().size(), 1u);
}

TEST(RuleNamesTest, AreThoseThatTheJobHasOrMayHave) {
  FakeClock clock;
  CombineOptions options = MakeOptions("mean");
  options.rule.external.name = "later";  // SetRule may make it external
  options.shadow_rules.push_back(MakeOptions("krum").rule);
  options.shadow_rules.push_back(MakeOptions("external").rule);
  options.shadow_rules[1].external.name = "shadow";
  RuleProcesses processes(&clock, options);
  ASSERT_EQ(processes.Status().size(), 1u);
  EXPECT_EQ(processes.Status()[0].name, "shadow");
  RulePoll poll;
  poll.process = 7;
  poll.client = "host:7";
  poll.name = "external";
  Given other;
  processes.Poll(poll, other.Take());
  EXPECT_EQ(other.Wait().status().message(),
            "name is \"external\"; allowed: \"later\", \"shadow\"");
  poll.name = "later";
  Given later;
  EXPECT_NE(processes.Poll(poll, later.Take()), 0u);
  EXPECT_FALSE(later.has());
  processes.Stop();
}

TEST(MakeQuestionTest, HasTheKeptRowsAndTheirMatrices) {
  CombineOptions options = MakeOptions("external");
  options.rule.scope = Scope::kPerTensor;
  RoundInput input = MakeRound({{{1, 2}, {3, 4}, {0, 1}}, {{1}, {5}, {2}}});
  input.rows[1].loss_scale = std::numeric_limits<double>::infinity();
  input.rows[2].examples = 9;
  const CompactedRound round =
      CompactRound(input.rows, std::move(input.tensors));
  RoundWords words;
  words.epoch = 4;
  words.round = 12;
  words.tensors = std::make_shared<const std::vector<std::string>>(
      std::vector<std::string>{"a", "b"});
  words.losses = {0.25, 0.5, std::nan("")};
  std::vector<RuleState> states(2);
  states[1].bytes = "of b";
  const auto question =
      MakeQuestion(options, options.rule, round, states, words);
  ASSERT_TRUE(question.ok());
  EXPECT_EQ(question->epoch, 4u);
  EXPECT_EQ(question->round, 12u);
  ASSERT_EQ(question->rows.size(), 2u);
  EXPECT_EQ(question->rows[1].rank, 2);
  EXPECT_EQ(question->rows[1].examples, 9);
  EXPECT_EQ(question->losses[0], 0.25);
  EXPECT_TRUE(std::isnan(question->losses[1]));
  ASSERT_EQ(question->segments.size(), 2u);
  EXPECT_EQ(question->segments[0].tensor, "a");
  EXPECT_THAT(question->segments[0].gram, ElementsAre(5.0, 2.0, 1.0));
  EXPECT_THAT(question->segments[1].gram, ElementsAre(1.0, 2.0, 4.0));
  EXPECT_EQ(question->segments[1].state, "of b");
  EXPECT_THAT(question->no_step_scale, HasSubstr("\"per_tensor\""));
  options.rule.scope = Scope::kGlobal;
  const auto whole = MakeQuestion(options, options.rule, round, {}, words);
  ASSERT_TRUE(whole.ok());
  ASSERT_EQ(whole->segments.size(), 1u);
  EXPECT_EQ(whole->segments[0].tensor, "");
  EXPECT_THAT(whole->segments[0].gram, ElementsAre(6.0, 4.0, 5.0));
  EXPECT_EQ(whole->no_step_scale, "");
  options.step_scale.kind = StepScale::kLinear;
  EXPECT_THAT(
      MakeQuestion(options, options.rule, round, {}, words)->no_step_scale,
      HasSubstr("\"linear\""));
}

TEST(MakeQuestionTest, RefusesWhatDoesNotFitIntoAMessage) {
  CombineOptions options = MakeOptions("external");
  options.rule.scope = Scope::kPerTensor;
  std::vector<RowInfo> rows(200);
  std::vector<GramMatrix> tensors(50, GramMatrix(200));
  const CompactedRound round = CompactRound(rows, std::move(tensors));
  RoundWords words;
  words.losses.resize(200);
  words.tensors = std::make_shared<const std::vector<std::string>>(50, "w");
  const auto question = MakeQuestion(options, options.rule, round, {}, words);
  EXPECT_TRUE(absl::IsResourceExhausted(question.status()));
  EXPECT_THAT(std::string(question.status().message()),
              HasSubstr("200 rows of 50 tensors takes 8051250 bytes"));
}

// Names and states count, too.
TEST(MakeQuestionTest, RefusesManyTensorsOfFewRows) {
  CombineOptions options = MakeOptions("external");
  options.rule.scope = Scope::kPerTensor;
  constexpr size_t kTensors = 20'000;
  const CompactedRound round =
      CompactRound(std::vector<RowInfo>(2),
                   std::vector<GramMatrix>(kTensors, GramMatrix(2)));
  RoundWords words;
  words.losses.resize(2);
  words.tensors = std::make_shared<const std::vector<std::string>>(
      kTensors, std::string(100, 'x'));
  EXPECT_TRUE(MakeQuestion(options, options.rule, round, {}, words).ok());
  std::vector<RuleState> states(kTensors);
  for (RuleState& state : states) state.bytes = std::string(300, 's');
  EXPECT_TRUE(absl::IsResourceExhausted(
      MakeQuestion(options, options.rule, round, states, words).status()));
  words.tensors = std::make_shared<const std::vector<std::string>>(
      kTensors, std::string(400, 'x'));
  EXPECT_TRUE(absl::IsResourceExhausted(
      MakeQuestion(options, options.rule, round, {}, words).status()));
}

}  // namespace
}  // namespace agg
