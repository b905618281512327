#include "server/coordinator/job_record.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/rule_table.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

RuleOptions AdaconsRule() {
  RuleOptions options;
  options.rule = FindRule("adacons");
  options.scope = Scope::kGlobal;
  options.adacons.beta = 0.1;
  options.adacons.rescale = AdaconsRescale::kMeanNorm;
  return options;
}

JobRecord Sample() {
  JobRecord record;
  record.history = 0xfffffffffffffffe;
  record.started = true;
  record.num_steps = 41;
  record.rule = AdaconsRule();
  record.state.rule = {{{0.1, 1.0 / 3.0, -0.0, 1e-310}}};
  record.shadow_rules = {RuleOptions(), AdaconsRule()};
  record.shadow_rules[1].scope = Scope::kPerTensor;
  record.state.shadow_rules = {{}, {{{2.0}}, {{3.0, 4.0}}}};
  record.state.step_scale = {1.5, 0.25, 3.0, 0.125, 17, 12.75};
  RecordedOutcome outcome;
  outcome.outcome.epoch = 5;
  outcome.outcome.round = 40;
  outcome.outcome.version = 41;
  outcome.outcome.kind = OutcomeKind::kSkipped;
  outcome.outcome.ranks = {0, 2};
  outcome.outcome.excluded_ranks = {1};
  outcome.outcome.orthogonality = std::nan("");
  outcome.outcome.loss = std::numeric_limits<double>::infinity();
  outcome.outcome.learning_rate = 0.1;
  outcome.outcome.gain = 1.25;
  outcome.outcome.tau = 12.75;
  outcome.outcome.combined_norm = 2.5;
  outcome.outcome.finished = true;
  outcome.outcome.message = "no gradient is finite: \"why\"\n";
  outcome.outcome.combination = {"adacons", "global", "adascale"};
  outcome.outcome.absent_tensors = {3, 99999};
  outcome.outcome.differing_ranks = {2};
  outcome.included = {{0xfedcba9876543210, 3}, {7, 0}};
  record.outcomes = {outcome};
  record.used_rows = {{0, {7, 40, 0}}, {2, {0xfedcba9876543210, 39, 3}}};
  return record;
}

TEST(JobRecordTest, ReadsBackWhatItWrites) {
  const JobRecord record = Sample();
  const std::string text = JobRecordText(record);
  const auto back = ParseJobRecord(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(JobRecordText(*back), text);
  EXPECT_EQ(back->history, record.history);
  EXPECT_TRUE(back->started);
  EXPECT_EQ(back->num_steps, 41);
  EXPECT_EQ(back->rule.rule, record.rule.rule);
  EXPECT_EQ(back->rule.adacons.beta, 0.1);
  EXPECT_EQ(back->rule.adacons.rescale, AdaconsRescale::kMeanNorm);
  EXPECT_EQ(back->state.rule[0].values, record.state.rule[0].values);
  EXPECT_TRUE(std::signbit(back->state.rule[0].values[2]));
  ASSERT_THAT(back->state.shadow_rules, SizeIs(2));
  EXPECT_THAT(back->state.shadow_rules[0], IsEmpty());
  EXPECT_THAT(back->state.shadow_rules[1][1].values, ElementsAre(3.0, 4.0));
  EXPECT_EQ(back->state.step_scale.num_samples, 17);
  EXPECT_EQ(back->state.step_scale.mean_squared_weight, 0.125);
  EXPECT_EQ(back->state.step_scale.tau, 12.75);
  const RecordedOutcome& outcome = back->outcomes.at(0);
  EXPECT_EQ(outcome.outcome.kind, OutcomeKind::kSkipped);
  EXPECT_THAT(outcome.outcome.ranks, ElementsAre(0, 2));
  EXPECT_TRUE(std::isnan(outcome.outcome.orthogonality));
  EXPECT_TRUE(std::isinf(outcome.outcome.loss));
  EXPECT_EQ(outcome.outcome.message, record.outcomes[0].outcome.message);
  EXPECT_THAT(outcome.outcome.absent_tensors, ElementsAre(3, 99999));
  EXPECT_THAT(outcome.outcome.differing_ranks, ElementsAre(2));
  EXPECT_EQ(outcome.included, record.outcomes[0].included);
  EXPECT_EQ(back->used_rows.at(2).session, 0xfedcba9876543210u);
  EXPECT_EQ(back->used_rows.at(2).round, 39u);
}

// Checkpoints of today's releases are read by tomorrow's.
TEST(JobRecordTest, ItsTextStaysByteForByte) {
  JobRecord record = Sample();
  record.line = 3;
  EXPECT_EQ(
      JobRecordText(record),
      R"({"history": 18446744073709551614, "line": 3, "started": true, "num_steps": 41, )"
      R"("rule": {"rule": "adacons", "scope": "global", "beta": 0.1, "epsilon": 1e-08, "rescale": 1}, )"
      R"("state": [{"values": [0.1, 0.3333333333333333, -0.0, 1e-310]}], )"
      R"("shadow_rules": [)"
      R"({"rule": "mean", "scope": "global", "beta": 0.99, "epsilon": 1e-08, "rescale": 0, "state": []}, )"
      R"({"rule": "adacons", "scope": "per_tensor", "beta": 0.1, "epsilon": 1e-08, "rescale": 1, "state": [{"values": [2.0]}, {"values": [3.0, 4.0]}]}], )"
      R"("step_scale": {"variance": 1.5, "variance_weight": 0.25, "mean_squared": 3.0, )"
      R"("mean_squared_weight": 0.125, "num_samples": 17, "tau": 12.75}, )"
      R"("outcomes": [{"epoch": 5, "round": 40, "version": 41, "kind": 1, "ranks": [0, 2], )"
      R"("excluded_ranks": [1], "learning_rate": 0.1, "gain": 1.25, "tau": 12.75, )"
      R"("orthogonality": "NaN", "finished": true, )"
      R"("message": "no gradient is finite: \"why\"\n", "loss": "Infinity", )"
      R"("combined_norm": 2.5, "rule": "adacons", "scope": "global", )"
      R"("step_scale": "adascale", "absent_tensors": [3, 99999], )"
      R"("differing_ranks": [2], "included": [{"session": 7, "attempt": 0}, )"
      R"({"session": 18364758544493064720, "attempt": 3}]}], )"
      R"("used_rows": [{"rank": 0, "session": 7, "round": 40, "attempt": 0}, )"
      R"({"rank": 2, "session": 18364758544493064720, "round": 39, "attempt": 3}]})");
}

TEST(JobRecordTest, AnEmptyOneReadsBackToo) {
  const auto back = ParseJobRecord(JobRecordText(JobRecord()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(JobRecordText(*back), JobRecordText(JobRecord()));
}

TEST(JobRecordTest, NamesWhatIsWrong) {
  EXPECT_TRUE(absl::IsDataLoss(ParseJobRecord("").status()));
  EXPECT_TRUE(absl::IsDataLoss(ParseJobRecord("[]").status()));
  const auto error = [](const std::string& from, const std::string& to) {
    const std::string text = JobRecordText(Sample());
    const std::string changed = absl::StrReplaceAll(text, {{from, to}});
    EXPECT_NE(changed, text) << from;
    const absl::Status status = ParseJobRecord(changed).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error("\"num_steps\": 41", "\"num_steps\": -1"),
              HasSubstr("record.num_steps is -1; allowed"));
  EXPECT_THAT(error("\"tau\"", "\"other\""),
              HasSubstr("record.step_scale.tau is missing"));
  EXPECT_THAT(error("\"rule\": \"adacons\"", "\"rule\": \"gone\""),
              HasSubstr("record.rule.rule is \"gone\"; allowed: "));
  EXPECT_THAT(error("\"rescale\": 1", "\"rescale\": 9"),
              HasSubstr("record.rule.rescale is 9; allowed: 0 to 2"));
  EXPECT_THAT(error("\"kind\": 1", "\"kind\": 3"),
              HasSubstr("record.outcomes[0].kind is 3; allowed: 0 to 2"));
}

TEST(JobRecordTest, ATextThatIsTooLongLacksTheShadowsMemory) {
  const JobRecord record = Sample();
  const std::string full = JobRecordText(record);
  bool cut = true;
  EXPECT_EQ(JobRecordText(record, static_cast<int64_t>(full.size()), &cut),
            full);
  EXPECT_FALSE(cut);
  const std::string less =
      JobRecordText(record, static_cast<int64_t>(full.size()) - 1, &cut);
  EXPECT_TRUE(cut);
  EXPECT_LT(less.size(), full.size());
  const absl::StatusOr<JobRecord> read = ParseJobRecord(less);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->shadow_rules, IsEmpty());
  EXPECT_EQ(read->state.rule.at(0).values, record.state.rule[0].values);
}

TEST(StateToGoOnWithTest, IsTheSameStateForTheSameCombination) {
  const JobRecord record = Sample();
  CombineOptions now;
  now.rule = AdaconsRule();
  now.shadow_rules = record.shadow_rules;
  const CombineState state = StateToGoOnWith(record, now, 2);
  EXPECT_EQ(state.rule.at(0).values, record.state.rule[0].values);
  ASSERT_THAT(state.shadow_rules, SizeIs(2));
  EXPECT_THAT(state.shadow_rules[1], SizeIs(2));
  EXPECT_EQ(state.step_scale.tau, 12.75);
}

TEST(StateToGoOnWithTest, AnotherRuleStartsAnewAndAveragesGoOn) {
  const JobRecord record = Sample();
  CombineOptions now;
  now.rule = AdaconsRule();
  now.rule.adacons.beta = 0.2;
  now.shadow_rules = {AdaconsRule(), record.shadow_rules[1], AdaconsRule()};
  const CombineState state = StateToGoOnWith(record, now, /*num_tensors=*/3);
  EXPECT_THAT(state.rule, IsEmpty());
  ASSERT_THAT(state.shadow_rules, SizeIs(3));
  EXPECT_THAT(state.shadow_rules[0], IsEmpty());
  // Of two tensors, and the job has three.
  EXPECT_THAT(state.shadow_rules[1], IsEmpty());
  EXPECT_THAT(state.shadow_rules[2], IsEmpty());
  EXPECT_EQ(state.step_scale.num_samples, 17);
}

}  // namespace
}  // namespace agg
