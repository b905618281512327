#include "server/coordinator/job_record.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/rule_table.h"
#include "server/round/round_report.h"

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
  StepScaleState& scale = record.state.step_scale;
  scale.variance = 1.5;
  scale.variance_weight = 0.25;
  scale.mean_squared = 3.0;
  scale.mean_squared_weight = 0.125;
  scale.num_samples = 17;
  scale.tau = 12.75;
  RoundResult outcome;
  outcome.epoch = 5;
  outcome.round = 40;
  outcome.version = 41;
  outcome.kind = OutcomeKind::kSkipped;
  outcome.ranks = {0, 2};
  outcome.excluded_ranks = {1};
  outcome.orthogonality = std::nan("");
  outcome.loss = std::numeric_limits<double>::infinity();
  outcome.learning_rate = 0.1;
  outcome.gain = 1.25;
  outcome.tau = 12.75;
  outcome.combined_norm = 2.5;
  outcome.finished = true;
  outcome.message = "no gradient is finite: \"why\"\n";
  outcome.combination = {"adacons", "global", "adascale"};
  outcome.absent_tensors = {3, 99999};
  outcome.differing_ranks = {2};
  outcome.attempts = {{7, 0}, {0xfedcba9876543210, 3}};
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
  const RoundResult& outcome = back->outcomes.at(0);
  EXPECT_EQ(outcome.kind, OutcomeKind::kSkipped);
  EXPECT_THAT(outcome.ranks, ElementsAre(0, 2));
  EXPECT_TRUE(std::isnan(outcome.orthogonality));
  EXPECT_TRUE(std::isinf(outcome.loss));
  EXPECT_EQ(outcome.message, record.outcomes[0].message);
  EXPECT_THAT(outcome.absent_tensors, ElementsAre(3, 99999));
  EXPECT_THAT(outcome.differing_ranks, ElementsAre(2));
  EXPECT_EQ(outcome.attempts, record.outcomes[0].attempts);
  EXPECT_EQ(back->used_rows.at(2).session, 0xfedcba9876543210u);
  EXPECT_EQ(back->used_rows.at(2).round, 39u);
}

// Checkpoints of today's releases are read by tomorrow's.
TEST(JobRecordTest, ItsTextStaysByteForByte) {
  JobRecord record = Sample();
  record.line = 3;
  EXPECT_EQ(
      JobRecordText(record),
      R"({"history": 18446744073709551614, "line": 3, "started": true, )"
      R"("num_steps": 41, "rule": {"rule": "adacons", "scope": "global", )"
      R"("beta": 0.1, "epsilon": 1e-08, "rescale": 1}, "state": )"
      R"([{"values": [0.1, 0.3333333333333333, -0.0, 1e-310]}], )"
      R"("shadow_rules": [{"rule": "mean", "scope": "per_tensor", "beta": )"
      R"(0.99, "epsilon": 1e-08, "rescale": 0, "state": []}, {"rule": )"
      R"("adacons", "scope": "per_tensor", "beta": 0.1, "epsilon": 1e-08, )"
      R"("rescale": 1, "state": [{"values": [2.0]}, {"values": [3.0, )"
      R"(4.0]}]}], "step_scale": {"variance": 1.5, "variance_weight": )"
      R"(0.25, "mean_squared": 3.0, "mean_squared_weight": 0.125, )"
      R"("num_samples": 17, "tau": 12.75}, "outcomes": [{"epoch": 5, )"
      R"("round": 40, "version": 41, "kind": 1, "ranks": [0, 2], )"
      R"("excluded_ranks": [1], "learning_rate": 0.1, "gain": 1.25, "tau": )"
      R"(12.75, "orthogonality": "NaN", "finished": true, "message": "no )"
      R"(gradient is finite: \"why\"\n", "loss": "Infinity", )"
      R"("combined_norm": 2.5, "rule": "adacons", "scope": "global", )"
      R"("step_scale": "adascale", "absent_tensors": [3, 99999], )"
      R"("differing_ranks": [2], "included": [{"session": 7, "attempt": )"
      R"(0}, {"session": 18364758544493064720, "attempt": 3}]}], )"
      R"("used_rows": [{"rank": 0, "session": 7, "round": 40, "attempt": )"
      R"(0}, {"rank": 2, "session": 18364758544493064720, "round": 39, )"
      R"("attempt": 3}]})");
}

// Older records have no unsort, and only one that is not the default is
// written.
TEST(JobRecordTest, AnUnsortReadsBack) {
  JobRecord record = Sample();
  record.shadow_rules[1].adacons.unsort = AdaconsUnsort::kGather;
  const std::string text = JobRecordText(record);
  EXPECT_THAT(text, HasSubstr("\"unsort\": 1"));
  const auto back = ParseJobRecord(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->rule.adacons.unsort, AdaconsUnsort::kScatter);
  EXPECT_EQ(back->shadow_rules[1].adacons.unsort, AdaconsUnsort::kGather);
  const std::string wrong =
      absl::StrReplaceAll(text, {{"\"unsort\": 1", "\"unsort\": 2"}});
  EXPECT_THAT(std::string(ParseJobRecord(wrong).status().message()),
              HasSubstr("unsort is 2; allowed: 0 to 1"));
}

// The last field of StepScaleState is of gains per group, and that of the scale
// of jobs that reset moments with it: others' texts are as they were.
TEST(JobRecordTest, GroupsAveragesAndTheScaleAreThereWhereTheyAreUsed) {
  JobRecord record = Sample();
  record.num_batches = 1.0 / 3.0;
  GroupAverages group;
  group.name = "bias";
  group.variance = 0.1;
  group.mean_squared_weight = 0.75;
  group.num_samples = 3;
  record.state.step_scale.groups = {GroupAverages(), group};
  const std::string text = JobRecordText(record);
  EXPECT_THAT(
      text,
      HasSubstr(R"("num_steps": 41, "num_batches": 0.3333333333333333, )"));
  EXPECT_THAT(
      text,
      HasSubstr(R"({"name": "bias", "variance": 0.1, "variance_weight": 0.0, )"
                R"("mean_squared": 0.0, "mean_squared_weight": 0.75, )"
                R"("num_samples": 3}]})"));
  const auto back = ParseJobRecord(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(JobRecordText(*back), text);
  EXPECT_EQ(back->num_batches, 1.0 / 3.0);
  ASSERT_THAT(back->state.step_scale.groups, SizeIs(2));
  EXPECT_EQ(back->state.step_scale.groups[1].name, "bias");
  EXPECT_EQ(back->state.step_scale.groups[1].variance, 0.1);
  const std::string bad = absl::StrReplaceAll(
      text, {{"\"num_batches\": 0.3333333333333333", "\"num_batches\": -1.0"}});
  EXPECT_THAT(std::string(ParseJobRecord(bad).status().message()),
              HasSubstr("record.num_batches is -1; allowed: finite and > 0"));
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

// A configuration may list its groups in another order, and have others.
TEST(StateToGoOnWithTest, GroupsAreFoundByTheirNames) {
  JobRecord record = Sample();
  for (const char* name : {"", "a", "b"}) {
    GroupAverages& group = record.state.step_scale.groups.emplace_back();
    group.name = name;
    group.variance = static_cast<double>(record.state.step_scale.groups.size());
    group.num_samples = 9;
  }
  CombineOptions now;
  now.rule = record.rule;
  now.step_scale.gain_scope = GainScope::kPerGroup;
  now.step_scale.groups = {"", "b", "c"};
  const std::vector<GroupAverages> groups =
      StateToGoOnWith(record, now, 2).step_scale.groups;
  ASSERT_THAT(groups, SizeIs(3));
  EXPECT_EQ(groups[0].variance, 1.0);
  EXPECT_EQ(groups[1].name, "b");
  EXPECT_EQ(groups[1].variance, 3.0);
  EXPECT_EQ(groups[2].name, "c");
  EXPECT_EQ(groups[2].num_samples, 0);
  // An older record has none, and one gain needs none.
  EXPECT_THAT(StateToGoOnWith(Sample(), now, 2).step_scale.groups, SizeIs(3));
  now.step_scale.groups = {};
  EXPECT_THAT(StateToGoOnWith(record, now, 2).step_scale.groups, IsEmpty());
}

// Bytes of any kind, which JSON has no word for.
TEST(JobRecordTest, TheStateOfAnExternalRuleReadsBack) {
  JobRecord record = Sample();
  record.rule = RuleOptions();
  record.rule.rule = FindRule("external");
  record.rule.external.name = "mine";
  record.state.rule.assign(2, RuleState());
  record.state.rule[0].bytes = std::string("\0\xff\"\n", 4);
  const std::string text = JobRecordText(record);
  const auto back = ParseJobRecord(text);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(JobRecordText(*back), text);
  EXPECT_EQ(back->rule.external.name, "mine");
  EXPECT_EQ(back->state.rule.at(0).bytes, record.state.rule[0].bytes);
  EXPECT_EQ(back->state.rule.at(1).bytes, "");

  CombineOptions now;
  now.rule = record.rule;
  now.rule.scope = back->rule.scope;
  EXPECT_EQ(StateToGoOnWith(*back, now, 2).rule.at(0).bytes,
            record.state.rule[0].bytes);
  now.rule.external.name = "another";  // another function's
  EXPECT_THAT(StateToGoOnWith(*back, now, 2).rule, IsEmpty());

  const std::string bad = absl::StrReplaceAll(text, {{"AP8iCg==", "A!"}});
  EXPECT_THAT(std::string(ParseJobRecord(bad).status().message()),
              HasSubstr("bytes is \"A!\"; allowed: base64"));
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

TEST(JobFactsTest, NothingHasChanged) {
  EXPECT_EQ(JobChangesText(JobChanges()), "");
  const auto read = ParseJobChanges("");
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read->finished);
  EXPECT_FALSE(read->rule.has_value());
}

TEST(JobFactsTest, TheEndAndItsReasonReadBack) {
  JobChanges changes;
  changes.finished = true;
  changes.failed = true;
  changes.end_reason = "max_rounds (\"7\") is reached";
  const auto read = ParseJobChanges(JobChangesText(changes));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->finished);
  EXPECT_TRUE(read->failed);
  EXPECT_EQ(read->end_reason, changes.end_reason);
}

// What an operator has set makes the same combination of any other one.
TEST(JobFactsTest, ARuleReadsBackAndChangesAnythingIntoIt) {
  CombineOptions options;
  options.rule.rule = FindRule("adacons");
  options.rule.scope = Scope::kPerTensor;
  options.rule.adacons.beta = 0.25;
  options.rule.adacons.rescale = AdaconsRescale::kMatchMean;
  options.rule.adacons.unsort = AdaconsUnsort::kGather;
  options.schedule.learning_rate = 0.1 + 0.2;  // not a short decimal
  JobChanges changes;
  changes.rule = ChangeTo(options);
  CombineOptions plain;
  plain.schedule.learning_rate = 3;
  changes.next_rule = ChangeTo(plain);
  changes.next_round = 12;
  const auto read = ParseJobChanges(JobChangesText(changes));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->next_round, 12u);
  ASSERT_TRUE(read->next_rule.has_value());
  EXPECT_FALSE(read->next_rule->adacons_beta.has_value());
  const auto made = ChangedCombination(plain, *read->rule, /*workers=*/8);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->rule.rule, options.rule.rule);
  EXPECT_EQ(made->rule.scope, Scope::kPerTensor);
  EXPECT_EQ(made->rule.adacons.beta, 0.25);
  EXPECT_EQ(made->rule.adacons.rescale, AdaconsRescale::kMatchMean);
  EXPECT_EQ(made->rule.adacons.unsort, AdaconsUnsort::kGather);
  EXPECT_EQ(made->schedule.learning_rate, options.schedule.learning_rate);
  const auto back =
      ChangedCombination(options, *read->next_rule, /*workers=*/8);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->rule.rule, plain.rule.rule);
  EXPECT_EQ(back->schedule.learning_rate, 3);
}

TEST(JobFactsTest, KrumReadsBackAndMayBeMissing) {
  CombineOptions options;
  options.schedule.learning_rate = 1;
  options.rule.rule = FindRule("multi_krum");
  options.rule.krum = {3, 4};
  JobChanges changes;
  changes.rule = ChangeTo(options);
  const auto read = ParseJobChanges(JobChangesText(changes));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rule->krum_byzantine_workers, 3);
  EXPECT_EQ(read->rule->krum_selected, 4);
  const auto made = ChangedCombination(options, *read->rule, /*workers=*/8);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->rule.krum.selected, 4);
  // Of a rule that is not Krum.
  options.rule.rule = FindRule("mean");
  changes.rule = ChangeTo(options);
  const std::string text = JobChangesText(changes);
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("krum")));
  EXPECT_TRUE(ParseJobChanges(text).ok());
}

// As for a record: tomorrow's releases read what today's have written.
TEST(JobFactsTest, TheirTextStaysByteForByte) {
  JobChanges changes;
  changes.finished = true;
  changes.end_reason = "done";
  RuleChange krum;
  krum.rule = "multi_krum";
  krum.learning_rate = 0.5;
  krum.krum_byzantine_workers = 3;
  krum.krum_selected = 4;
  changes.rule = krum;
  RuleChange adacons;
  adacons.scope = "global";
  adacons.adacons_beta = 0.25;
  adacons.adacons_rescale = "match_mean";
  changes.next_rule = adacons;
  changes.next_round = 12;
  EXPECT_EQ(
      JobChangesText(changes),
      R"({"finished": true, "failed": false, "end_reason": "done", "rule": [)"
      R"({"rule": "multi_krum", "scope": "", "step_scale": "", )"
      R"("force_step_scale": false, "learning_rate": 0.5, "adacons": false, )"
      R"("adacons_beta": 0.0, "adacons_rescale": "", )"
      R"("krum_byzantine_workers": 3, "krum_selected": 4}], )"
      R"("next_rule": [{"rule": "", "scope": "global", "step_scale": "", )"
      R"("force_step_scale": false, "learning_rate": 0.0, "adacons": true, )"
      R"("adacons_beta": 0.25, "adacons_rescale": "match_mean"}], )"
      R"("next_round": 12})");
  JobChanges more;
  more.evicted = {{5, "a"}};
  KeptReduction made;
  made.sums = {0.5};
  made.ranks = {0, 2};
  made.last = {{2, {7, 1}}};
  more.reduction = std::make_shared<const KeptReduction>(made);
  EXPECT_EQ(
      JobChangesText(more),
      R"({"finished": false, "failed": false, "end_reason": "", "rule": [], )"
      R"("next_rule": [], "next_round": 0, )"
      R"("evicted": [{"session": 5, "reason": "a"}], )"
      R"("reduction": [{"sums": [0.5], "ranks": [0, 2], "left_out": [], )"
      R"("last": [{"rank": 2, "giver": 7, "call": 1}]}]})");
}

TEST(JobFactsTest, TheLastReductionReadsBackToTheBit) {
  KeptReduction one;
  one.sums = {0.1 + 0.2, -0.0, std::numeric_limits<double>::infinity(),
              std::numeric_limits<double>::denorm_min(),
              std::numeric_limits<double>::quiet_NaN()};
  one.ranks = {0, 2};
  one.left_out = {1};
  one.last = {{0, {(uint64_t{1} << 63) + 1, 7}}, {1, {3, 1}}, {2, {4, 9}}};
  JobChanges changes;
  changes.reduction = std::make_shared<const KeptReduction>(one);
  const auto read = ParseJobChanges(JobChangesText(changes));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_NE(read->reduction, nullptr);
  const KeptReduction& back = *read->reduction;
  EXPECT_EQ(back.ranks, one.ranks);
  EXPECT_EQ(back.left_out, one.left_out);
  ASSERT_EQ(back.last.size(), 3u);
  EXPECT_EQ(back.last.at(0).giver, (uint64_t{1} << 63) + 1);
  EXPECT_EQ(back.last.at(2).call, 9u);
  ASSERT_EQ(back.sums.size(), one.sums.size());
  for (size_t i = 0; i + 1 < one.sums.size(); ++i) {
    EXPECT_EQ(back.sums[i], one.sums[i]) << i;
    EXPECT_EQ(std::signbit(back.sums[i]), std::signbit(one.sums[i])) << i;
  }
  EXPECT_TRUE(std::isnan(back.sums.back()));
  // A rewind does not undo it: some workers have its sums.
  EXPECT_NE(AfterRewind(JobChanges(), changes).reduction, nullptr);
  EXPECT_NE(AfterRewind(changes, JobChanges()).reduction, nullptr);
  // As many as are allowed, each number with all its digits: a shard takes
  // them.
  one.sums.assign(8192, -1.2345678901234567e-300);
  changes.reduction = std::make_shared<const KeptReduction>(one);
  EXPECT_LT(JobChangesText(changes).size(), size_t{1} << 18);
}

TEST(JobFactsTest, TheEvictedReadBackTheNewestOfThem) {
  JobChanges changes;
  AddEvicted({{uint64_t{1} << 63, "evicted: \"why\""}, {7, "evicted: b"}},
             &changes.evicted);
  AddEvicted({{7, "another"}}, &changes.evicted);  // known
  auto read = ParseJobChanges(JobChangesText(changes));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->evicted.size(), 2u);
  EXPECT_EQ(read->evicted[0].session, uint64_t{1} << 63);
  EXPECT_EQ(read->evicted[0].reason, "evicted: \"why\"");
  EXPECT_EQ(read->evicted[1].reason, "evicted: b");
  // The longest reasons leave the facts' text within its bound.
  for (uint64_t session = 100; session < 600; ++session) {
    AddEvicted({{session, "evicted: " + std::string(512, '\x01')}},
               &changes.evicted);
  }
  EXPECT_LT(JobChangesText(changes).size(), size_t{1} << 20);
  read = ParseJobChanges(JobChangesText(changes));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->evicted.size(), kMaxEvictedSessions);
  EXPECT_EQ(read->evicted.back().session, 599u);
}

TEST(JobFactsTest, ARewindUndoesTheEndAndNotWhatOperatorsWereTold) {
  RuleChange sum;
  sum.rule = "sum";
  RuleChange mean;
  mean.rule = "mean";
  JobChanges sealed;
  sealed.rule = sum;
  sealed.evicted = {{5, "a"}};
  JobChanges newest;
  newest.finished = true;
  newest.rule = sum;
  newest.next_rule = mean;
  newest.next_round = 9;
  newest.evicted = {{5, "a"}, {6, "b"}};
  const JobChanges after = AfterRewind(sealed, newest);
  EXPECT_FALSE(after.finished);
  EXPECT_EQ(*after.next_rule->rule, "mean");
  EXPECT_EQ(after.next_round, 9u);
  EXPECT_EQ(after.evicted.size(), 2u);
  EXPECT_EQ(*AfterRewind(sealed, JobChanges()).rule->rule, "sum");
}

TEST(JobFactsTest, TheirPlaceInTheOrderReadsBack) {
  JobFacts facts;
  facts.epoch = uint64_t{1} << 60;
  facts.number = 3;
  facts.text = "{\"a\": \"b\"}";
  const auto read = ParseFacts(FactsText(facts));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->epoch, facts.epoch);
  EXPECT_EQ(read->number, 3u);
  EXPECT_EQ(read->text, facts.text);
  EXPECT_EQ(ParseFacts("")->epoch, 0u);
}

TEST(JobFactsTest, WhatIsNoJsonOrLacksAFieldIsNamed) {
  EXPECT_TRUE(absl::IsDataLoss(ParseJobChanges("[").status()));
  EXPECT_TRUE(absl::IsDataLoss(ParseFacts("3").status()));
  const absl::Status status = ParseJobChanges(
                                  "{\"finished\": 3, \"failed\": false, "
                                  "\"end_reason\": \"\", \"rule\": [], "
                                  "\"next_rule\": [], \"next_round\": 0}")
                                  .status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(std::string(status.message()).find("facts.finished"),
            std::string::npos);
}

// What is left of rounds whose coordinator is gone.

RoundResult Outcome(uint64_t epoch, uint64_t round) {
  RoundResult outcome;
  outcome.epoch = epoch;
  outcome.round = round;
  outcome.version = round + 1;
  outcome.ranks = {0, 2};
  outcome.excluded_ranks = {1};
  outcome.message = "excluded";
  outcome.attempts = {{4096, 3}, {4097, 0}};
  return outcome;
}

JobRecord Record() {
  JobRecord record;
  record.history = 20;
  record.outcomes = {Outcome(10, 4), Outcome(20, 5), Outcome(21, 6)};
  record.used_rows = {{0, {4096, 6, 3}}, {2, {5000, 6, 0}}};
  return record;
}

TEST(RestoredRoundsTest, WhatWasNotReportedIsMadeAgain) {
  const std::vector<RoundReport> reports = RestoredReports(Record(), {10, 5});
  ASSERT_EQ(reports.size(), 2u);
  const RoundReport& report = reports[0];
  EXPECT_TRUE(report.restored);
  EXPECT_TRUE(report.applied);
  EXPECT_EQ(report.epoch, 20u);
  EXPECT_EQ(report.history, 20u);
  EXPECT_EQ(report.round, 5u);
  EXPECT_EQ(report.version, 6u);
  EXPECT_EQ(report.message, "excluded");
  ASSERT_EQ(report.rows.size(), 3u);
  EXPECT_EQ(report.rows[0].rank, 0);
  EXPECT_EQ(report.rows[0].session, 4096u);
  EXPECT_EQ(report.rows[0].attempt, 3u);
  // The rank has another session by now.
  EXPECT_EQ(report.rows[1].rank, 2);
  EXPECT_EQ(report.rows[1].session, 0u);
  EXPECT_EQ(report.rows[2].rank, 1);
  EXPECT_EQ(report.decision.excluded_ranks, std::vector<int32_t>{1});
}

TEST(RestoredRoundsTest, AnotherProcessKnowsNothing) {
  const std::vector<RoundReport> reports = RestoredReports(Record(), {});
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].history, 0u);  // before the last rewind
  EXPECT_TRUE(RestoredReports(JobRecord(), {}).empty());
}

constexpr int32_t kWorkers = 8;

CombineOptions Options() {
  CombineOptions options;
  options.rule.rule = FindRule("mean");
  options.rule.kappa_limit = 123.0;
  options.schedule.learning_rate = 0.5;
  options.shadow_rules.resize(1);
  return options;
}

std::string ErrorOf(const RuleChange& change) {
  const absl::Status status =
      ChangedCombination(Options(), change, kWorkers).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(RuleChangeTest, ARuleComesWithItsScopeAndKeepsTheRest) {
  RuleChange change;
  change.rule = "adacons";
  const auto adacons = ChangedCombination(Options(), change, kWorkers);
  ASSERT_TRUE(adacons.ok()) << adacons.status();
  EXPECT_EQ(NamesOf(*adacons), (CombinationNames{"adacons", "global", "none"}));
  EXPECT_EQ(adacons->rule.kappa_limit, 123.0);
  EXPECT_EQ(adacons->schedule.learning_rate, 0.5);
  EXPECT_THAT(adacons->shadow_rules, SizeIs(1));
  change.scope = "per_tensor";
  EXPECT_EQ(NamesOf(*ChangedCombination(Options(), change, kWorkers)),
            (CombinationNames{"adacons", "per_tensor", "none"}));
}

TEST(RuleChangeTest, TheSameRuleKeepsAnUnusualScope) {
  CombineOptions options = Options();
  options.rule.scope = Scope::kGlobal;
  RuleChange change;
  change.rule = "mean";
  change.step_scale = "linear";
  EXPECT_EQ(NamesOf(*ChangedCombination(options, change, kWorkers)),
            (CombinationNames{"mean", "global", "linear"}));
}

TEST(RuleChangeTest, NumbersChangeAlone) {
  RuleChange change;
  change.learning_rate = 0.25;
  const auto rate = ChangedCombination(Options(), change, kWorkers);
  ASSERT_TRUE(rate.ok());
  EXPECT_EQ(rate->schedule.learning_rate, 0.25);
  EXPECT_EQ(NamesOf(*rate), NamesOf(Options()));
  change.rule = "adacons";
  change.adacons_beta = 0.5;
  change.adacons_rescale = "match_mean";
  change.adacons_unsort = "gather";
  const auto adacons = ChangedCombination(Options(), change, kWorkers);
  ASSERT_TRUE(adacons.ok());
  EXPECT_EQ(adacons->rule.adacons.unsort, AdaconsUnsort::kGather);
  EXPECT_EQ(adacons->rule.adacons.beta, 0.5);
  EXPECT_EQ(adacons->rule.adacons.rescale, AdaconsRescale::kMatchMean);
}

TEST(RuleChangeTest, ErrorsSayWhatIsAllowed) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("nothing to change"));
  RuleChange change;
  change.rule = "median";
  EXPECT_THAT(ErrorOf(change),
              HasSubstr("rule is \"median\"; allowed: \"sum\""));
  change.rule = "adasum";
  change.scope = "local";
  EXPECT_THAT(ErrorOf(change), HasSubstr("\"local\""));
  change.scope.reset();
  change.step_scale = "cubic";
  EXPECT_THAT(ErrorOf(change), HasSubstr("\"cubic\""));
  // The gain is that of a mean: as in a configuration.
  change.step_scale = "adascale";
  EXPECT_THAT(ErrorOf(change), HasSubstr("force: true"));
  change.force_step_scale = true;
  EXPECT_TRUE(ChangedCombination(Options(), change, kWorkers).ok());
  change.adacons_beta = 0.5;
  EXPECT_THAT(ErrorOf(change), HasSubstr("the rule is \"adasum\""));
  change.rule = "adacons";
  change.adacons_beta = 1.0;
  EXPECT_THAT(ErrorOf(change), HasSubstr("beta"));
  change = RuleChange();
  change.learning_rate = -1.0;
  EXPECT_THAT(ErrorOf(change), HasSubstr("learning_rate.rate is -1"));
}

TEST(RuleChangeTest, KrumComesWithItsOptions) {
  RuleChange change;
  change.rule = "multi_krum";
  change.krum_byzantine_workers = 2;
  change.krum_selected = 3;
  const auto several = ChangedCombination(Options(), change, kWorkers);
  ASSERT_TRUE(several.ok()) << several.status();
  EXPECT_EQ(several->rule.krum.byzantine_workers, 2);
  EXPECT_EQ(several->rule.krum.selected, 3);
  change.rule = "krum";
  EXPECT_THAT(ErrorOf(change),
              HasSubstr("krum_selected is 3; allowed: with rule "
                        "\"multi_krum\"; the rule is \"krum\""));
  change.krum_selected.reset();
  EXPECT_TRUE(ChangedCombination(Options(), change, kWorkers).ok());
  change.rule = "mean";
  EXPECT_THAT(ErrorOf(change),
              HasSubstr("krum_byzantine_workers is 2; allowed: with rule "
                        "\"krum\" or \"multi_krum\""));
  change.rule = "krum";
  change.krum_byzantine_workers = -1;
  EXPECT_THAT(ErrorOf(change), HasSubstr("krum.byzantine_workers is -1"));
}

// As a configuration's default: what the guarantee allows, at most 1.
TEST(RuleChangeTest, KrumThatIsNewComesWithTheDefaultOfItsWorkers) {
  RuleChange change;
  change.rule = "krum";
  for (const int32_t workers : {1, 2, 3, 4, 5, 6, 9}) {
    const auto made = ChangedCombination(Options(), change, workers);
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(made->rule.krum.byzantine_workers, workers < 5 ? 0 : 1)
        << workers;
  }
  change.krum_byzantine_workers = 3;  // what is said stays
  auto krum = ChangedCombination(Options(), change, 4);
  ASSERT_TRUE(krum.ok()) << krum.status();
  EXPECT_EQ(krum->rule.krum.byzantine_workers, 3);
  // It stays with its like, and is new again behind another rule.
  change = RuleChange();
  change.rule = "multi_krum";
  krum = ChangedCombination(*krum, change, 4);
  ASSERT_TRUE(krum.ok()) << krum.status();
  EXPECT_EQ(krum->rule.krum.byzantine_workers, 3);
  change.rule = "mean";
  krum = ChangedCombination(*krum, change, 4);
  ASSERT_TRUE(krum.ok()) << krum.status();
  change.rule = "krum";
  krum = ChangedCombination(*krum, change, 4);
  ASSERT_TRUE(krum.ok()) << krum.status();
  EXPECT_EQ(krum->rule.krum.byzantine_workers, 0);
}

// As after a restart, which knows the options of the rule in effect alone.
TEST(RuleChangeTest, OptionsEndWithTheirRule) {
  CombineOptions options = Options();
  options.rule.adacons.epsilon = 1e-6;
  const auto change_to = [&](RuleChange change, const char* rule) {
    change.rule = rule;
    const auto changed = ChangedCombination(options, change, kWorkers);
    ASSERT_TRUE(changed.ok()) << changed.status();
    options = *changed;
  };
  RuleChange several;
  several.krum_selected = 2;
  change_to(several, "multi_krum");
  change_to({}, "multi_krum");
  EXPECT_EQ(options.rule.krum.selected, 2);
  change_to({}, "krum");
  change_to({}, "multi_krum");
  EXPECT_EQ(options.rule.krum.selected, 0);

  RuleChange momentum;
  momentum.adacons_beta = 0.5;
  momentum.adacons_rescale = "match_mean";
  momentum.adacons_unsort = "gather";
  change_to(momentum, "adacons");
  change_to({}, "adacons");
  EXPECT_EQ(options.rule.adacons.beta, 0.5);
  EXPECT_EQ(options.rule.adacons.rescale, AdaconsRescale::kMatchMean);
  EXPECT_EQ(options.rule.adacons.unsort, AdaconsUnsort::kGather);
  change_to({}, "mean");
  change_to({}, "adacons");
  EXPECT_EQ(options.rule.adacons.unsort, AdaconsUnsort::kScatter);
  EXPECT_EQ(options.rule.adacons.beta, AdaconsOptions().beta);
  EXPECT_EQ(options.rule.adacons.rescale, AdaconsRescale::kNone);
  EXPECT_EQ(options.rule.adacons.epsilon, 1e-6);
}

TEST(RuleChangeTest, MomentumIsOfOneRuleAveragesAreOfTheGradients) {
  CombineState state;
  state.rule.resize(1);
  state.shadow_rules.resize(1);
  state.step_scale.variance = 3.0;
  state.step_scale.tau = 7.0;
  CombineOptions adacons = Options();
  adacons.rule.rule = FindRule("adacons");
  adacons.rule.scope = Scope::kGlobal;
  CombineOptions after = adacons;
  after.step_scale.kind = StepScale::kLinear;
  after.schedule.learning_rate = 2.0;
  after.rule.kappa_limit = 9.0;
  CarryState(adacons, after, &state);
  EXPECT_THAT(state.rule, SizeIs(1));
  for (const auto& other : {&AdaconsOptions::beta, &AdaconsOptions::epsilon}) {
    CombineState copy = state;
    after = adacons;
    after.rule.adacons.*other *= 0.5;
    CarryState(adacons, after, &copy);
    EXPECT_THAT(copy.rule, IsEmpty());
  }
  after = adacons;
  after.rule.scope = Scope::kPerTensor;
  CarryState(adacons, after, &state);
  EXPECT_THAT(state.rule, IsEmpty());
  EXPECT_THAT(state.shadow_rules, SizeIs(1));
  EXPECT_EQ(state.step_scale.variance, 3.0);
  EXPECT_EQ(state.step_scale.tau, 7.0);
}

}  // namespace
}  // namespace agg
