#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/combine/rule_table.h"
#include "server/coordinator/job_record.h"

namespace agg {
namespace {

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

// Checkpoints of today's releases are read by tomorrow's.
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

}  // namespace
}  // namespace agg
