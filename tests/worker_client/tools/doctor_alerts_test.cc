#include "worker_client/tools/doctor_alerts.h"

#include <cmath>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNow = 1.8e9;

std::string Rules() {
  std::ifstream file("deploy/prometheus/rules.yml");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What one rule of the file says.
struct Written {
  std::string name, severity, hold;
  Numbers numbers;
};

// Selectors, windows and texts in quotes are no thresholds.
Numbers NumbersIn(std::string expression) {
  for (const char* pattern :
       {R"(\{[^}]*\})", R"(\[[^\]]*\])", R"("[^"]*")", R"([A-Za-z_:][\w:]*)"}) {
    expression = std::regex_replace(expression, std::regex(pattern), " ");
  }
  const std::regex number(R"(\d+(\.\d+)?)");
  Numbers numbers;
  for (std::sregex_iterator i(expression.begin(), expression.end(), number),
       end;
       i != end; ++i) {
    double value = 0.0;
    EXPECT_TRUE(absl::SimpleAtod(i->str(), &value)) << i->str();
    numbers.push_back(value);
  }
  return numbers;
}

// The value of "key: value" in the rule; lines that are indented deeper than
// the key belong to it.
std::string ValueOfKey(const std::string& rule, const std::string& key) {
  std::string value;
  bool inside = false;
  size_t indent = 0;
  for (absl::string_view line : absl::StrSplit(rule, '\n')) {
    const size_t here = line.find_first_not_of(' ');
    if (here == absl::string_view::npos) continue;
    if (inside && here > indent) {
      absl::StrAppend(&value, " ", line.substr(here));
      continue;
    }
    if (inside) break;
    if (absl::StartsWith(line.substr(here), key + ":")) {
      inside = true;
      indent = here;
      value = std::string(line.substr(here + key.size() + 1));
      if (absl::EndsWith(value, ">-")) value.clear();
    }
  }
  const size_t first = value.find_first_not_of(' ');
  return first == std::string::npos ? "" : value.substr(first);
}

std::vector<Written> RulesOf(const std::string& kind) {
  const std::string rules = Rules();
  const std::regex head("\n      - (alert|record): (\\S+)");
  std::vector<Written> written;
  for (std::sregex_iterator i(rules.begin(), rules.end(), head), end;
       i != end;) {
    const std::smatch match = *i;
    const auto from = match.position(0) + match.length(0);
    const auto to = ++i == end ? static_cast<long>(rules.size())
                               : static_cast<long>(i->position(0));
    if (match[1] != kind) continue;
    const std::string rule = rules.substr(from, to - from);
    written.push_back({match[2], ValueOfKey(rule, "severity"),
                       ValueOfKey(rule, "for"),
                       NumbersIn(ValueOfKey(rule, "expr"))});
  }
  return written;
}

// So that no threshold is written twice and changed once.
TEST(DoctorAlertsTest, RulesAreThoseOfPrometheusByNameSeverityTimeAndNumbers) {
  const std::vector<Written> written = RulesOf("alert");
  ASSERT_GT(written.size(), 20u);
  std::vector<std::string> names, ours;
  for (const Written& rule : written) names.push_back(rule.name);
  for (const AlertRule& rule : AlertRules()) ours.emplace_back(rule.name);
  ASSERT_EQ(ours, names);
  for (size_t r = 0; r < written.size(); ++r) {
    SCOPED_TRACE(written[r].name);
    EXPECT_EQ(AlertRules()[r].severity, written[r].severity);
    EXPECT_EQ(AlertRules()[r].hold, written[r].hold);
    EXPECT_EQ(AlertRules()[r].numbers, written[r].numbers);
  }
  for (const RecordRule& record : RecordRules()) {
    SCOPED_TRACE(record.name);
    int found = 0;
    for (const Written& rule : RulesOf("record")) {
      if (rule.name != record.name) continue;
      ++found;
      EXPECT_EQ(record.numbers, rule.numbers);
    }
    EXPECT_EQ(found, 1);
  }
}

TEST(DoctorAlertsTest, ReadsPrometheusText) {
  const std::vector<Sample> samples = ParseMetrics(
      "# HELP a b\n# TYPE a gauge\n"
      "a 1\n"
      "b{x=\"1\",y=\"a,\\\"b\\\\ c}\\n\"} +Inf 123\n"
      "c{} NaN\n"
      "broken{x=\"1 2\nbroken\nbroken{x=\"1\"}\n");
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].name, "a");
  EXPECT_EQ(samples[0].value, 1);
  EXPECT_EQ(samples[1].labels.at("y"), "a,\"b\\ c}\n");
  EXPECT_TRUE(std::isinf(samples[1].value));
  EXPECT_TRUE(std::isnan(samples[2].value));
}

// Two shards of a job at work: nothing fires.
constexpr char kShard0[] =
    "aggserver_job_phase{phase=\"open\"} 1\n"
    "aggserver_job_phase{phase=\"finished\"} 0\n"
    "aggserver_shards 2\n"
    "aggserver_recovering 0\n"
    "aggserver_replication_configured 1\naggserver_replicated 1\n"
    "aggserver_checkpoint_interval_seconds 600\n"
    "aggserver_checkpoint_age_seconds 100\n"
    "aggserver_checkpoint_every_rounds 0\n"
    "aggserver_checkpoint_version 5\naggserver_job_version 9\n"
    "aggserver_start_time_seconds 1799990000\n"
    "aggserver_last_round_timestamp_seconds 1799999990\n"
    "aggserver_longest_wait_seconds 0\n"
    "aggserver_round_seconds_bucket{le=\"1\"} 0\n"
    "aggserver_round_seconds_bucket{le=\"10\"} 0\n"
    "aggserver_round_seconds_bucket{le=\"20\"} 100\n"
    "aggserver_round_seconds_bucket{le=\"+Inf\"} 100\n"
    "aggserver_worker_waited_for_seconds{worker=\"0\"} NaN\n"
    "aggserver_workers_joined 2\naggserver_workers_expected 2\n"
    "aggserver_workers_missing 0\naggserver_stopping 0\n"
    "aggserver_not_finite_rounds 0\naggserver_job_failed 0\n"
    "aggserver_checkpoint_failed_total 0\n"
    "aggserver_rounds_total{outcome=\"skipped\"} 0\n";
constexpr char kEach[] =
    "aggserver_memory_planned_bytes 100\n"
    "aggserver_memory_resident_bytes 200\n"
    "aggserver_memory_budget_bytes 1000\n"
    "aggserver_memory_limit_bytes 1250\n"
    "aggserver_audit_errors_total 0\n"
    "aggserver_device_memory_budget_bytes 0\n"
    "aggserver_device_memory_total_bytes 0\n"
    "aggserver_shared_memory_fallbacks_total{use=\"rows\"} 0\n"
    "aggserver_certificate_expiry_timestamp_seconds{file=\"certificate\"} "
    "1802000000\n"
    "aggserver_certificate_expiry_timestamp_seconds{file=\"client_ca\"} NaN\n";

// Those that fire, "Name" or "Name?", when a sample of shard 0 has another
// value.
std::vector<std::string> Fire(const std::string& series = "",
                              double value = 0.0) {
  AlertFacts facts;
  facts.shards.resize(2);
  for (size_t s = 0; s < 2; ++s) {
    facts.shards[s].answers = true;
    facts.shards[s].now = absl::FromUnixSeconds(static_cast<int64_t>(kNow));
    facts.shards[s].samples =
        ParseMetrics(absl::StrCat(s == 0 ? kShard0 : "", kEach));
  }
  if (!series.empty()) {
    const std::vector<Sample> other =
        ParseMetrics(absl::StrCat(series, " ", value));
    EXPECT_EQ(other.size(), 1u) << series;
    int changed = 0;
    for (Sample& sample : facts.shards[0].samples) {
      if (sample.name != other[0].name || sample.labels != other[0].labels) {
        continue;
      }
      sample.value = value;
      ++changed;
    }
    EXPECT_EQ(changed, 1) << series;
  }
  std::vector<std::string> names;
  for (const Alert& alert : JudgeAlerts(facts)) {
    EXPECT_FALSE(alert.why.empty());
    names.push_back(absl::StrCat(alert.rule->name, alert.perhaps ? "?" : ""));
  }
  return names;
}

TEST(DoctorAlertsTest, NoneFiresForAJobAtWork) {
  EXPECT_THAT(Fire(), IsEmpty());
}

// Each on either side of its threshold.
TEST(DoctorAlertsTest, EachFiresBeyondItsThreshold) {
  struct Case {
    const char* series;
    double quiet, fires;
    const char* alert;
  };
  constexpr char kCertificate[] =
      "aggserver_certificate_expiry_timestamp_seconds{file=\"certificate\"}";
  const Case cases[] = {
      {"aggserver_recovering", 0, 1, "AggRecovering"},
      {"aggserver_replicated", 1, 0, "AggNotReplicated"},
      {"aggserver_checkpoint_age_seconds", 1799, 1801, "AggCheckpointOld"},
      {"aggserver_job_failed", 0, 1, "AggJobFailed"},
      // The median is 15 s.
      {"aggserver_last_round_timestamp_seconds", kNow - 149, kNow - 151,
       "AggRoundStalled"},
      {"aggserver_longest_wait_seconds", 149, 151, "AggRoundStalled"},
      {"aggserver_workers_joined", 2, 1, "AggWorkersMissing"},
      {"aggserver_worker_waited_for_seconds{worker=\"0\"}", 149, 151,
       "AggWorkerStalled"},
      {"aggserver_not_finite_rounds", 0, 1, "AggParametersNotFinite"},
      {"aggserver_memory_resident_bytes", 1099, 1101, "AggMemoryAbovePlan"},
      {"aggserver_checkpoint_every_rounds", 2, 1, "AggCheckpointOld"},
      {"aggserver_audit_errors_total", 0, 1, "AggAuditErrors?"},
      {"aggserver_shared_memory_fallbacks_total{use=\"rows\"}", 0, 1,
       "AggSharedMemoryFallback"},
      {kCertificate, kNow + 14 * 86400 + 60, kNow + 14 * 86400 - 60,
       "AggCertificateExpires"},
      {"aggserver_checkpoint_failed_total", 0, 1, "AggCheckpointFailed?"},
      {"aggserver_rounds_total{outcome=\"skipped\"}", 0, 1,
       "AggRoundsSkipped?"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.series);
    EXPECT_THAT(Fire(c.series, c.quiet), IsEmpty());
    EXPECT_THAT(Fire(c.series, c.fires), ElementsAre(c.alert));
  }
  EXPECT_THAT(
      Fire(kCertificate, kNow + 86400 - 60),
      ElementsAre("AggCertificateExpires", "AggCertificateExpiresSoon"));
}

TEST(DoctorAlertsTest, AFullPlanMattersWhileWorkersAreToCome) {
  EXPECT_THAT(Fire("aggserver_memory_planned_bytes", 901), IsEmpty());
  AlertFacts facts;
  facts.shards.resize(1);
  const auto fired = [&](int planned, int missing) {
    facts.shards[0].samples = ParseMetrics(absl::StrCat(
        "aggserver_memory_budget_bytes 1000\naggserver_memory_planned_bytes ",
        planned, "\naggserver_workers_missing ", missing));
    return JudgeAlerts(facts).size();
  };
  facts.shards[0].answers = true;
  EXPECT_EQ(fired(901, 0), 0u);
  EXPECT_EQ(fired(899, 1), 0u);
  EXPECT_EQ(fired(901, 1), 1u);
}

TEST(DoctorAlertsTest, AProcessNearItsContainersLimit) {
  EXPECT_THAT(Fire("aggserver_memory_limit_bytes", 0), IsEmpty());
  EXPECT_THAT(Fire("aggserver_memory_limit_bytes", 211), IsEmpty());
  EXPECT_THAT(Fire("aggserver_memory_limit_bytes", 210),
              ElementsAre("AggMemoryNearLimit"));
}

TEST(DoctorAlertsTest, TheFirstRoundMayTakeTenMinutes) {
  AlertFacts facts;
  facts.shards.resize(1);
  facts.shards[0].now = absl::FromUnixSeconds(static_cast<int64_t>(kNow));
  facts.shards[0].answers = true;
  const auto fired = [&](int wait) {
    facts.shards[0].samples = ParseMetrics(
        absl::StrCat("aggserver_job_phase{phase=\"open\"} 1\n"
                     "aggserver_last_round_timestamp_seconds NaN\n"
                     "aggserver_round_seconds_bucket{le=\"1\"} 0\n"
                     "aggserver_round_seconds_bucket{le=\"+Inf\"} 0\n"
                     "aggserver_longest_wait_seconds ",
                     wait));
    return JudgeAlerts(facts).size();
  };
  EXPECT_EQ(fired(599), 0u);
  EXPECT_EQ(fired(601), 1u);
}

// In time and in rounds, and where there is none yet.
TEST(DoctorAlertsTest, CheckpointsByRounds) {
  AlertFacts facts;
  facts.shards.resize(1);
  facts.shards[0].now = absl::FromUnixSeconds(static_cast<int64_t>(kNow));
  facts.shards[0].answers = true;
  const auto why = [&](const std::string& samples) {
    facts.shards[0].samples =
        ParseMetrics(absl::StrCat("aggserver_job_phase{phase=\"open\"} 1\n"
                                  "aggserver_checkpoint_interval_seconds 0\n"
                                  "aggserver_checkpoint_every_rounds 10\n",
                                  samples));
    const std::vector<Alert> alerts = JudgeAlerts(facts);
    return alerts.empty() ? "" : alerts[0].why;
  };
  EXPECT_EQ(why("aggserver_checkpoint_age_seconds 61\n"
                "aggserver_job_version 40\naggserver_checkpoint_version 10\n"),
            "");
  EXPECT_EQ(why("aggserver_checkpoint_age_seconds 61\n"
                "aggserver_job_version 41\naggserver_checkpoint_version 10\n"),
            "the newest one is 31 rounds old");
  EXPECT_EQ(why("aggserver_checkpoint_age_seconds 59\n"
                "aggserver_job_version 41\naggserver_checkpoint_version 10\n"),
            "");
  const std::string none =
      "aggserver_checkpoint_age_seconds NaN\n"
      "aggserver_checkpoint_version NaN\naggserver_start_time_seconds ";
  // Its version counts the rounds of the job whose checkpoint it has borrowed.
  const auto rounds = [](int applied) {
    return absl::StrCat("\naggserver_job_version 900\n",
                        "aggserver_rounds_total{outcome=\"applied\"} ", applied,
                        "\n");
  };
  EXPECT_EQ(why(absl::StrCat(none, "1799999000", rounds(31))),
            "none in 31 rounds");
  EXPECT_EQ(why(absl::StrCat(none, "1799999000", rounds(30))), "");
  EXPECT_EQ(why(absl::StrCat(none, "1799999990", rounds(31))), "");
}

TEST(DoctorAlertsTest, MemoryAboveThePlanAndOfADevice) {
  AlertFacts facts;
  facts.shards.resize(1);
  facts.shards[0].now = absl::FromUnixSeconds(static_cast<int64_t>(kNow));
  facts.shards[0].answers = true;
  facts.shards[0].samples = ParseMetrics(
      "aggserver_memory_planned_bytes 1e9\n"
      "aggserver_memory_resident_bytes 2.6e9\n"
      "aggserver_memory_budget_bytes +Inf\n"
      "aggserver_device_memory_planned_bytes 91\n"
      "aggserver_device_memory_budget_bytes 100\n"
      "aggserver_device_memory_used_bytes 0\n"
      "aggserver_device_memory_total_bytes 200\n");
  std::vector<std::string> fired;
  for (const Alert& alert : JudgeAlerts(facts)) {
    fired.push_back(absl::StrCat(alert.rule->name, " ", alert.why));
  }
  EXPECT_THAT(fired, ElementsAre(HasSubstr("AggDeviceMemoryNearBudget shard 0"),
                                 HasSubstr("AggMemoryAbovePlan shard 0")));
}

TEST(DoctorAlertsTest, AShardThatIsGone) {
  AlertFacts facts;
  facts.shards.resize(2);
  facts.shards[0].now = absl::FromUnixSeconds(static_cast<int64_t>(kNow));
  facts.shards[0].answers = true;
  const auto fired = [&](const std::string& phase, int stopping = 0) {
    facts.shards[0].samples = ParseMetrics(absl::StrCat(
        "aggserver_job_phase{phase=\"", phase,
        "\"} 1\naggserver_shards 2\naggserver_stopping ", stopping));
    std::vector<std::string> texts;
    for (const Alert& alert : JudgeAlerts(facts)) {
      texts.push_back(absl::StrCat(alert.rule->name, ": ", alert.why));
    }
    return texts;
  };
  const std::string few = ": only 1 of 2 shards answer";
  EXPECT_THAT(fired("waiting_for_shards"),
              ElementsAre("AggShardDown: shard 1: it does not answer",
                          "AggShardMissing" + few));
  // The coordinator has all shards in its epoch.
  EXPECT_THAT(fired("open"), ElementsAre("AggShardUnread" + few));
  EXPECT_THAT(fired("finished"), IsEmpty());
  // It stops, as it was told to.
  EXPECT_THAT(fired("draining", 1), IsEmpty());
}

TEST(DoctorAlertsTest, AllWorkersAreInAndNobodySeeds) {
  AlertFacts facts;
  facts.shards.resize(1);
  facts.shards[0].answers = true;
  const auto fires = [&](int joined) {
    facts.shards[0].samples = ParseMetrics(absl::StrCat(
        "aggserver_job_phase{phase=\"unseeded\"} 1\n",
        "aggserver_workers_expected 2\naggserver_workers_joined ", joined));
    const std::vector<Alert> alerts = JudgeAlerts(facts);
    return alerts.empty() ? "" : alerts[0].rule->name;
  };
  EXPECT_STREQ(fires(2), "AggUnseeded");
  EXPECT_STREQ(fires(1), "AggWorkersMissing");
}

}  // namespace
}  // namespace agg
