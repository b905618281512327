#include "server/combine/rule_table.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(RuleTableTest, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const Rule& rule : Rules()) {
    EXPECT_TRUE(names.insert(std::string(rule.name)).second) << rule.name;
    EXPECT_EQ(FindRule(rule.name), &rule);
    EXPECT_EQ(*ParseRule("field", rule.name), &rule);
    EXPECT_NE(rule.make(), nullptr);
    EXPECT_FALSE(rule.summary.empty());
    EXPECT_NE(rule.summary.back(), '.');
  }
  EXPECT_EQ(FindRule("Adasum"), nullptr);
  EXPECT_EQ(FindRule(""), nullptr);
}

TEST(RuleTableTest, AnUnknownNameListsTheAllowedOnes) {
  const absl::Status status = ParseRule("combination.rule", "Mean").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().find("combination.rule is \"Mean\"; allowed: \""),
            0u);
  for (const Rule& rule : Rules()) {
    EXPECT_NE(status.message().find("\"" + std::string(rule.name) + "\""),
              std::string::npos);
  }
}

// Configurations that name no rule or scope must not change their meaning.
TEST(RuleTableTest, Defaults) {
  EXPECT_EQ(DefaultRule().name, "mean");
  EXPECT_EQ(FindRule("adacons")->default_scope, Scope::kGlobal);
  EXPECT_EQ(FindRule("adasum")->default_scope, Scope::kPerTensor);
  EXPECT_EQ(FindRule("mean")->default_scope, Scope::kPerTensor);
}

TEST(RuleTableTest, NamesOfRulesWithATrait) {
  EXPECT_EQ(NamesOfRulesWith(kIsMean), "\"mean\" or \"weighted_mean\"");
  EXPECT_EQ(NamesOfRulesWith(kTakesAdaconsOptions), "\"adacons\"");
}

}  // namespace
}  // namespace agg
