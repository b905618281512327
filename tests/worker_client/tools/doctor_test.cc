#include "worker_client/tools/doctor.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace agg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

void AddField(const std::string& path, const std::string& value, bool compared,
              v1::DescribeReply* description) {
  v1::ConfigField* const field = description->add_config();
  field->set_path(path);
  field->set_value(value);
  field->set_compared(compared);
}

// Two shards, two workers, nothing wrong.
DoctorFacts Healthy() {
  DoctorFacts facts;
  facts.now = absl::FromCivil(absl::CivilSecond(2026, 11, 20, 8, 0, 30),
                              absl::UTCTimeZone());
  facts.asked_at = facts.now;
  facts.status.emplace();
  facts.status->set_job("digits");
  facts.status->set_phase("open");
  facts.status->set_expected_workers(2);
  for (int rank = 0; rank < 2; ++rank) {
    v1::WorkerStatus* const worker = facts.status->add_workers();
    worker->set_rank(rank);
    worker->set_client(absl::StrCat("vm:", rank));
    worker->set_attending(true);
    worker->set_transports("shm");
  }
  for (int s = 0; s < 2; ++s) {
    ShardAnswer shard;
    shard.address = absl::StrCat("127.0.0.1:", 50051 + s);
    shard.version.emplace();
    shard.version->set_version("0.1.0");
    shard.version->set_job("digits");
    shard.version->set_ordinal(s);
    shard.description.emplace();
    shard.description->set_time_seconds(
        absl::ToDoubleSeconds(facts.now - absl::UnixEpoch()));
    AddField("workers", "2", true, &*shard.description);
    AddField("memory_budget_bytes", "0", false, &*shard.description);
    facts.shards.push_back(std::move(shard));
  }
  return facts;
}

std::string TextOf(const DoctorFacts& facts) {
  return DiagnosisText(Diagnose(facts));
}

TEST(DoctorTest, NothingIsWrong) {
  const Diagnosis diagnosis = Diagnose(Healthy());
  EXPECT_TRUE(diagnosis.findings.ok());
  EXPECT_EQ(DiagnosisText(diagnosis),
            "digits: nothing is wrong (2 shards asked at 08:00:30 UTC)\n\n"
            "SHARD  ADDRESS          RELEASE  CONFIGURATION  VERSION    CLOCK  "
            "PLANNED  RESIDENT  CERTIFICATE ENDS  CLIENT CA ENDS\n"
            "    0  127.0.0.1:50051  0.1.0    -                    -  +0.000s  "
            "      -         -  -                 -\n"
            "    1  127.0.0.1:50052  0.1.0    -                    -  +0.000s  "
            "      -         -  -                 -\n");
}

// Errors first, each field that must be alike with both values; what may differ
// is not named.
TEST(DoctorTest, ConfigurationsAreComparedFieldByField) {
  DoctorFacts facts = Healthy();
  v1::DescribeReply* const other = &*facts.shards[1].description;
  other->mutable_config(0)->set_value("3");
  other->mutable_config(1)->set_value("7");
  AddField("clip_norm", "0.5", true, other);
  facts.shards[0].clock_offset = absl::Seconds(-5);
  const Diagnosis diagnosis = Diagnose(facts);
  EXPECT_EQ(diagnosis.findings.Count(Severity::kError), 2);
  EXPECT_EQ(diagnosis.findings.Count(Severity::kWarning), 1);
  const std::string text = DiagnosisText(diagnosis);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("digits: 2 errors, 1 warning ("),
            HasSubstr("error    configurations differ: clip_norm is left out "
                      "on shard 0 (127.0.0.1:50051) and 0.5 on shard 1 "
                      "(127.0.0.1:50052)\nerror    configurations differ: "
                      "workers is 2 on shard 0 (127.0.0.1:50051) and 3 on "
                      "shard 1 (127.0.0.1:50052)\n         -> start all"),
            HasSubstr("\nwarning  the clock of shard 0 (127.0.0.1:50051) is "
                      "5s behind this machine's\n"),
            Not(HasSubstr("memory_budget_bytes"))));
  EXPECT_LT(text.find("\nerror "), text.find("\nwarning "));
}

// An offset that the round trip explains is none.
TEST(DoctorTest, AClockIsNotWrongByLessThanItWasMeasured) {
  DoctorFacts facts = Healthy();
  facts.shards[1].clock_offset = absl::Seconds(5);
  facts.shards[1].clock_error = absl::Seconds(4);
  EXPECT_TRUE(Diagnose(facts).findings.ok());
  facts.shards[1].clock_error = absl::Seconds(2);
  EXPECT_THAT(TextOf(facts), HasSubstr("is 5s ahead of this machine's"));
}

TEST(DoctorTest, AShardThatDoesNotAnswer) {
  DoctorFacts facts = Healthy();
  facts.shards[1] = ShardAnswer();
  facts.shards[1].address = "h:1";
  facts.shards[1].error = "cannot reach h:1: \x1b[2J";
  facts.status->set_recovering("waiting for all shards: shard 1 (h:1): gone");
  const Diagnosis diagnosis = Diagnose(facts);
  EXPECT_FALSE(diagnosis.findings.ok());
  EXPECT_THAT(
      DiagnosisText(diagnosis),
      AllOf(HasSubstr("error    shard 1 (h:1) does not answer: cannot reach "
                      "h:1: \\x1b[2J\n         -> if its process has ended"),
            HasSubstr("error    the job is between two epochs, and waits: "
                      "waiting for all shards: shard 1 (h:1): gone\n"),
            HasSubstr("error    AggShardDown (critical) fires when it has "
                      "been so for 1m: shard 1: it does not answer\n")));
  facts = Healthy();
  facts.shards[1].description.reset();
  facts.shards[1].no_description = "PERMISSION_DENIED: the role admin";
  EXPECT_THAT(TextOf(facts),
              HasSubstr("warning  shard 1 (127.0.0.1:50052) cannot be looked "
                        "at: PERMISSION_DENIED: the role admin\n"));
}

TEST(DoctorTest, AnotherProcessAtAShardsAddress) {
  DoctorFacts facts = Healthy();
  facts.shards[1].version->set_ordinal(0);
  facts.shards[1].version->set_job("other");
  facts.shards[1].version->set_version("0.2.0");
  EXPECT_THAT(
      TextOf(facts),
      AllOf(HasSubstr("error    at the address of shard 1 (127.0.0.1:50052) "
                      "is shard 0\n"),
            HasSubstr("is the job \"other\", and not \"digits\"\n"),
            HasSubstr("warning  shard 1 (127.0.0.1:50052) is of release "
                      "0.2.0, another one of 0.1.0\n")));
}

TEST(DoctorTest, WorkersThatAreMissingOrWaitedFor) {
  DoctorFacts facts = Healthy();
  facts.status->set_expected_workers(3);
  facts.status->mutable_workers(1)->set_waited_for_seconds(3.0);
  facts.status->mutable_workers(1)->set_attending(false);
  const Diagnosis diagnosis = Diagnose(facts);
  EXPECT_TRUE(diagnosis.findings.ok());
  EXPECT_THAT(DiagnosisText(diagnosis),
              AllOf(HasSubstr("note     2 of 3 workers are in; nobody is rank "
                              "2\n"),
                    HasSubstr("note     rank 1 (vm:1) is waited for since "
                              "08:00:27 UTC, 3.0s; it is not connected\n")));
  facts.status->set_min_workers(3);
  facts.status->set_below_floor_seconds(10);
  EXPECT_THAT(TextOf(facts),
              HasSubstr("warning  2 workers are in, and at least 3 are needed, "
                        "since 08:00:20 UTC\n"));
}

TEST(DoctorTest, ExternalRulesThatNobodyDecides) {
  DoctorFacts facts = Healthy();
  v1::RuleProcess* const rule = facts.status->add_rule_processes();
  rule->set_name("mine");
  EXPECT_THAT(TextOf(facts),
              HasSubstr("note     no process decides the external rule "
                        "\"mine\": as a shadow it has no numbers\n"));
  facts.status->mutable_combination()->set_rule("external");
  EXPECT_THAT(TextOf(facts),
              HasSubstr("warning  no process decides the external rule "
                        "\"mine\": rounds have its fallback\n"));
  rule->set_client("vm:7");
  EXPECT_THAT(TextOf(facts), HasSubstr("\"mine\" any more (it was vm:7): "));
  rule->set_connected(true);
  EXPECT_THAT(TextOf(facts), HasSubstr("nothing is wrong"));
}

// A reply may say any number.
TEST(DoctorTest, TenOfTheMissingRanksAreNamed) {
  DoctorFacts facts = Healthy();
  facts.status->set_expected_workers(2'000'000'000);
  facts.status->mutable_workers(1)->set_rank(5);
  EXPECT_THAT(TextOf(facts),
              HasSubstr("nobody is rank 1, 2, 3, 4, 6, 7, 8, 9, 10, 11 and "
                        "1999999988 more\n"));
}

// Others may have been asked for long after that, and this machine's clock
// may be another.
TEST(DoctorTest, TimesAreJudgedByTheClockOfWhoSaysThem) {
  DoctorFacts facts = Healthy();
  facts.status->mutable_workers(1)->set_waited_for_seconds(3.0);
  const double time = facts.shards[1].description->time_seconds();
  constexpr double kDays = 24 * 3600;
  for (ShardAnswer& shard : facts.shards) {
    shard.description->set_metrics(absl::StrFormat(
        "aggserver_job_phase{phase=\"open\"} 1\n"
        "aggserver_last_round_timestamp_seconds %f\n"
        "aggserver_certificate_expiry_timestamp_seconds{file=\"ca\"} %f\n",
        time - 1, time + 15 * kDays));
  }
  facts.now += absl::Seconds(2 * kDays);
  const std::string text = TextOf(facts);
  EXPECT_THAT(text, AllOf(Not(HasSubstr("AggRoundStalled")),
                          Not(HasSubstr("AggCertificateExpires")),
                          HasSubstr("is waited for since 08:00:27 UTC")));
  facts.shards[1].description->set_time_seconds(time + 2 * kDays);
  EXPECT_THAT(TextOf(facts), HasSubstr("shard 1: ca ends in "));
}

TEST(DoctorTest, CheckpointsAndWhatRestoreWouldTake) {
  DoctorFacts facts = Healthy();
  facts.status->mutable_checkpoint()->set_last_error("no space");
  facts.checkpoints.emplace();
  facts.checkpoints->set_text("the newest is version 45");
  auto* found = facts.checkpoints->add_found();
  found->set_made(7);
  found->set_version(45);
  found = facts.checkpoints->add_found();
  found->set_made(7);
  found->set_version(44);
  found->set_missing("shard 1 (/c) lacks part 1 of 2");
  EXPECT_THAT(
      TextOf(facts),
      AllOf(HasSubstr("warning  the last checkpoint failed: no space\n"),
            HasSubstr("warning  checkpoint 7-44 is not complete: shard 1 (/c) "
                      "lacks part 1 of 2\n"),
            HasSubstr("\ncheckpoint 7-45: complete: aggctl restore 7-45\n"),
            HasSubstr("a restart of all shards: the newest is version 45\n")));
}

TEST(DoctorTest, TransportsThatFellBack) {
  DoctorFacts facts = Healthy();
  for (ShardAnswer& shard : facts.shards) {
    AddField("unix_socket", "\"auto\"", false, &*shard.description);
    AddField("shared_memory", "\"on\"", false, &*shard.description);
  }
  facts.status->mutable_workers(0)->set_transports("tcp");
  facts.status->mutable_workers(1)->set_transports("shm,unix");
  EXPECT_THAT(
      TextOf(facts),
      AllOf(HasSubstr("rank 0 (vm:0) is on the shards' host and sends by tcp"),
            HasSubstr("rank 1 (vm:1) is on the shards' host and sends by shm,"
                      "unix")));
  // From another host TCP is what there is.
  facts.shards[1].address = "10.0.0.1:50052";
  EXPECT_THAT(TextOf(facts), Not(HasSubstr("sends by")));
}

TEST(DoctorTest, LimitsThatHaveRefusedCalls) {
  DoctorFacts facts = Healthy();
  facts.shards[1].description->set_metrics(
      "aggserver_denied_total{reason=\"max_streams\"} 4\n"
      "aggserver_denied_total{reason=\"role\"} 4\n");
  const std::string text = TextOf(facts);
  EXPECT_THAT(text, HasSubstr("warning  the limit max_streams of shard 1 "
                              "(127.0.0.1:50052) has refused 4 calls"));
  EXPECT_THAT(text, Not(HasSubstr("the limit role")));
}

TEST(DoctorTest, AsJson) {
  DoctorFacts facts = Healthy();
  facts.shards[1].error = "gone \xff";
  facts.shards[1].description.reset();
  facts.shards[1].version.reset();
  const std::string text = DiagnosisJson(Diagnose(facts));
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["job"], "digits");
  EXPECT_EQ(json["findings"][0]["severity"], "error");
  EXPECT_EQ(json["alerts"][0]["alert"], "AggShardDown");
  EXPECT_EQ(json["shards"].size(), 2u);
  EXPECT_EQ(json["shards"][0]["release"], "0.1.0");
  EXPECT_TRUE(json["shards"][0]["memory_budget_bytes"].is_null());
}

}  // namespace
}  // namespace agg
