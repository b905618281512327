// RoundHistory, /status.json and /trace.json.
#include "server/status/status_json.h"

#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/job_phase.h"
#include "server/base/json.h"
#include "server/status/round_point.h"
#include "tests/server/round_log/logged_rounds.h"

namespace agg {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Written(const RoundHistory& history, uint64_t after) {
  Json json;
  history.AddTo(after, &json);
  return CompactJson(json);
}

RoundHistory::Options Small() {
  RoundHistory::Options options;
  options.max_rounds = 4;
  options.max_tensors = 1;
  return options;
}

TEST(RoundHistoryTest, KeepsTheLastRounds) {
  RoundHistory history(Small());
  EXPECT_THAT(Written(history, 0), HasSubstr("\"next\":1,\"rounds\":[]"));
  EXPECT_THAT(Written(history, 0), HasSubstr("\"last\":null"));
  history.SetTensors(SomeRun().tensors);
  for (uint64_t round = 0; round < 6; ++round) history.Add(SomeRound(round));
  const std::string all = Written(history, 0);
  EXPECT_THAT(all, HasSubstr("\"rounds\":[{\"seq\":3,\"round\":2,"));
  EXPECT_THAT(all, HasSubstr("{\"seq\":6,\"round\":5,"));
  EXPECT_THAT(all, HasSubstr("\"next\":7"));
  EXPECT_THAT(all, HasSubstr("\"applied\":6,\"skipped\":0"));
  EXPECT_THAT(all, HasSubstr("\"excluded_rows\":6"));
  // Only the largest tensor, its name escaped.
  EXPECT_THAT(all, HasSubstr("\"tensors\":[\"a\\u003cb\\u003e\\u0026\\\"\"]"));
  EXPECT_THAT(all, HasSubstr("\"manifest_tensors\":2"));
  EXPECT_THAT(all, HasSubstr("\"tensors\":[0.75]}"));
  EXPECT_EQ(history.Points().size(), 4u);
  // What a page asks for that has all but the last round.
  const std::string one = Written(history, 6);
  EXPECT_THAT(one, HasSubstr("\"rounds\":[{\"seq\":6,"));
  EXPECT_THAT(Written(history, 7), HasSubstr("\"rounds\":[]"));
}

TEST(RoundHistoryTest, TheLastRoundInDetail) {
  RoundHistory history(Small());
  history.Add(SomeRound(3));
  RoundReport with_outlier = SomeRound(3);
  with_outlier.decision.outliers.rows = {{5, 2, 9.0, 9.0}};
  history.Add(with_outlier);
  RoundReport incomplete = SomeRound(3);
  incomplete.incomplete_rows.resize(1);
  incomplete.incomplete_rows[0].rank = 5;
  RoundHistory other(Small());
  other.Add(incomplete);
  EXPECT_THAT(Written(other, 0), HasSubstr("\"outlier_ranks\":[],"
                                           "\"incomplete_ranks\":[5]"));
  EXPECT_THAT(Written(history, 0),
              HasSubstr("\"excluded\":[5],\"outlier_ranks\":[5]"));
  history.Add(SomeRound(3));
  RoundReport skipped = SomeRound(4);
  skipped.applied = false;
  skipped.message = std::string(1000, 'm');
  history.Add(skipped);
  const std::string json = Written(history, 0);
  // The applied round's cosines, made square; what is not finite is null.
  EXPECT_THAT(json, HasSubstr("\"last\":{\"round\":3,\"ranks\":[0,1,5],"
                              "\"excluded\":[5],\"outlier_ranks\":[],"
                              "\"incomplete_ranks\":[]"));
  EXPECT_THAT(json, HasSubstr("\"cosines\":[[1,0.5,null],[0.5,1,null],"
                              "[null,null,null]]"));
  // Compute seconds by shard, all phases together.
  EXPECT_THAT(json, HasSubstr("\"shard_seconds\":[0.008,0.016]"));
  EXPECT_THAT(json, HasSubstr("\"skipped\":1"));
  EXPECT_THAT(json, HasSubstr("\"" + std::string(200, 'm') + "\""));
}

// The numbers of SomeRound(), under the keys that the page reads.
TEST(RoundHistoryTest, EachRoundHasItsNumbers) {
  RoundHistory history(Small());
  history.Add(SomeRound(3));
  RoundReport skipped = SomeRound(4);
  skipped.applied = false;
  history.Add(skipped);
  Json json;
  history.AddTo(0, &json);
  const Json expected = {
      {"loss", 0.75}, {"orthogonality", 0.8}, {"gain", 1.7},    {"tau", 12.3},
      {"rate", 0.15}, {"diversity", 0.6},     {"cosine", 0.51}, {"least", 0.49},
      {"rank", 1.8},  {"norm", 2.2},          {"noise", 77}};
  for (const auto& [key, value] : expected.items()) {
    EXPECT_EQ(json["rounds"][0].value(key, Json()), value) << key;
    EXPECT_EQ(json["rounds"][1].contains(key), key == "loss") << key;
  }
  std::map<std::string, std::string> labels;
  for (const Json& tile : json["numbers"]) {
    const std::string key = tile["key"];
    EXPECT_TRUE(json["rounds"][0].contains(key)) << key;
    labels[key] = tile["label"];
  }
  EXPECT_EQ(labels["orthogonality"], "orthogonality");
  EXPECT_EQ(labels["rate"], "learning rate");
  EXPECT_EQ(labels["tau"], "scale-invariant steps");
  EXPECT_EQ(labels["rank"], "effective rank");
  EXPECT_EQ(labels["noise"], "critical batch");
  EXPECT_EQ(labels["useful"], "useful workers");
  EXPECT_EQ(labels.count("cosine"), 0u);  // it has a chart
}

TEST(RoundHistoryTest, AnotherModelBeginsAnew) {
  RoundHistory history(Small());
  history.SetTensors(SomeRun().tensors);
  history.Add(SomeRound(0));
  history.SetTensors(SomeRun().tensors);  // the same one, another epoch
  EXPECT_EQ(history.Points().size(), 1u);
  history.SetTensors({{"other", 5}});
  EXPECT_TRUE(history.Points().empty());
  EXPECT_THAT(Written(history, 0), HasSubstr("\"last\":null"));
  history.Add(SomeRound(1));
  EXPECT_THAT(Written(history, 0), HasSubstr("{\"seq\":2,"));
}

TEST(StatusJsonTest, SaysWhoIsWaitedFor) {
  StatusPageOptions options;
  options.metrics.job = "digits";
  options.shards = {"h0:1", "h1:1"};
  options.instance = "one";
  JobStatus job;
  job.phase = JobPhase::kOpen;
  job.missing_ranks = {3};
  WorkerState worker;
  worker.rank = 3;
  worker.client = "<img src=x onerror=alert(1)>\xff";
  worker.waited_for = absl::Milliseconds(1500);
  worker.late_rows = 12;
  worker.last_rows = 40;
  worker.lateness = absl::Milliseconds(250);
  worker.transports.text = "shm tcp";
  job.workers = {worker};
  job.round_timeout = absl::Seconds(4);
  RoundHistory history(Small());
  const std::string json =
      StatusJson(options, ShardStatus(), job, &history, std::nullopt, 0);
  EXPECT_THAT(json, HasSubstr("\"missing\":[3]"));
  EXPECT_THAT(json, HasSubstr("\"waited\":1.5"));
  EXPECT_THAT(json, HasSubstr("\"late\":12"));
  EXPECT_THAT(json, HasSubstr("\"last\":40"));
  EXPECT_THAT(json, HasSubstr("\"lateness\":0.25"));
  EXPECT_THAT(json, HasSubstr("\"transports\":\"shm tcp\""));
  EXPECT_THAT(json, HasSubstr("\"round_timeout\":4"));
  EXPECT_THAT(json, Not(HasSubstr("<")));
  EXPECT_THAT(json, HasSubstr("\"instance\":\"one\""));
  EXPECT_THAT(json, Not(HasSubstr("round_log")));
}

// The words of aggctl, made by the same function.
TEST(StatusJsonTest, WorkersHaveOneWordEach) {
  JobStatus job;
  job.phase = JobPhase::kOpen;
  job.missing_ranks = {1, 2};
  job.workers.resize(4);
  for (int rank = 0; rank < 4; ++rank) job.workers[rank].rank = rank;
  job.workers[0].committed = true;
  job.workers[1].waited_for = absl::Seconds(3);
  const auto words = [&job] {
    const Json json = Json::parse(StatusJson(StatusPageOptions(), ShardStatus(),
                                             job, nullptr, std::nullopt, 0));
    std::vector<std::string> states;
    for (const Json& worker : json["job"]["workers"]) {
      states.push_back(worker["state"]);
    }
    return states;
  };
  EXPECT_THAT(words(), ElementsAre("committed", "waited for", "computing",
                                   "next round"));
  job.phase = JobPhase::kShardLost;
  EXPECT_THAT(words(), Each("joined"));
}

TEST(StatusJsonTest, ShardZeroTellsOfTheOthers) {
  StatusPageOptions options;
  options.shards = {"h0:1", "h1:1"};
  JobStatus job;
  job.shard_errors = {"", "shard 1 (h1:1): connection refused"};
  const Json json = Json::parse(
      StatusJson(options, ShardStatus(), job, nullptr, std::nullopt, 0));
  EXPECT_EQ(json["server"]["shards"], Json({"h0:1", "h1:1"}));
  EXPECT_EQ(json["job"]["shard_errors"],
            Json({"", "shard 1 (h1:1): connection refused"}));
}

TEST(StatusJsonTest, WhetherOthersReachItWithoutTls) {
  StatusPageOptions options;
  EXPECT_EQ(ServerJson(options)["insecure"], false);
  options.metrics.insecure = true;
  EXPECT_EQ(ServerJson(options)["insecure"], true);
  EXPECT_EQ(ServerJson(options)["identities"], false);
  options.identities = true;
  EXPECT_EQ(ServerJson(options)["identities"], true);
}

TEST(StatusJsonTest, WhatTheJobWouldSurvive) {
  StatusPageOptions options;
  options.metrics.replicated = true;
  JobStatus job;
  job.recovering = "shard 1 (h1:1): connection refused";
  job.replicated = true;
  job.history = 9007199254740993;  // 2^53 + 1
  job.rewinds = 2;
  const auto written = [&] {
    return Json::parse(
        StatusJson(options, ShardStatus(), job, nullptr, std::nullopt, 0));
  };
  Json json = written();
  EXPECT_EQ(json["server"]["replicated"], true);
  EXPECT_EQ(json["job"]["recovering"], job.recovering);
  EXPECT_EQ(json["job"]["replicated"], true);
  EXPECT_EQ(json["job"]["history"], "9007199254740993");
  EXPECT_EQ(json["job"]["rewinds"], 2);
  EXPECT_EQ(json["job"]["checkpoint"], Json());
  CheckpointStatus& checkpoint = job.checkpoint;
  checkpoint.configured = true;
  checkpoint.writing = true;
  checkpoint.last_error = std::string(1000, 'e');
  checkpoint.num_failed = 1;
  json = written()["job"]["checkpoint"];
  EXPECT_EQ(json["version"], Json());
  EXPECT_EQ(json["age"], Json());
  EXPECT_EQ(json["restored"], Json());
  EXPECT_EQ(json["error"], std::string(400, 'e'));
  EXPECT_EQ(json["writing"], true);
  EXPECT_EQ(json["failed"], 1);
  checkpoint.made = checkpoint.restored_made = 5;
  checkpoint.version = 17;
  checkpoint.restored_version = 11;
  checkpoint.restore = "the job goes on from version 11";
  checkpoint.age = absl::Milliseconds(2500);
  checkpoint.num_sealed = 3;
  checkpoint.num_skipped = 4;
  json = written()["job"]["checkpoint"];
  EXPECT_EQ(json["version"], 17);
  EXPECT_EQ(json["age"], 2.5);
  EXPECT_EQ(json["restored"], 11);
  EXPECT_EQ(json["restore"], "the job goes on from version 11");
  EXPECT_EQ(json["sealed"], 3);
  EXPECT_EQ(json["skipped"], 4);
}

TEST(StatusJsonTest, OtherShardsHaveNoJob) {
  StatusPageOptions options;
  options.metrics.ordinal = 1;
  options.coordinator_host = "agg-0.agg";
  options.coordinator_port = 9464;
  const std::string json = StatusJson(options, ShardStatus(), std::nullopt,
                                      nullptr, std::nullopt, 0);
  EXPECT_THAT(json, HasSubstr("\"job\":null"));
  EXPECT_THAT(json, Not(HasSubstr("\"rounds\"")));
  EXPECT_THAT(json, HasSubstr("\"coordinator\":{\"host\":\"agg-0.agg\","
                              "\"port\":9464}"));
}

TEST(ChromeTraceTest, SpansFollowOneAnother) {
  RoundHistory history(Small());
  history.Add(SomeRound(7));
  const std::string trace = ChromeTrace("digits", history.Points());
  EXPECT_TRUE(absl::StartsWith(trace, "{\"displayTimeUnit\":\"ms\","));
  // 500 + 10 + 1 + 20 + 2 ms before 1700000017 s.
  EXPECT_THAT(trace,
              HasSubstr("\"name\":\"round 7\",\"pid\":1,\"tid\":0,\"cat\":"
                        "\"round\",\"ts\":1700000016467000,\"dur\":533000,"));
  EXPECT_THAT(trace, HasSubstr("\"name\":\"wait\",\"pid\":1,\"tid\":0,\"cat\":"
                               "\"round\",\"ts\":1700000016467000,"
                               "\"dur\":500000}"));
  EXPECT_THAT(trace, HasSubstr("\"name\":\"gram\",\"pid\":1,\"tid\":1,\"cat\":"
                               "\"round\",\"ts\":1700000016967000,"
                               "\"dur\":8000}"));
  EXPECT_THAT(trace,
              HasSubstr("\"name\":\"update\",\"pid\":1,\"tid\":2,\"cat\":"
                        "\"round\",\"ts\":1700000016978000,\"dur\":16000}"));
  EXPECT_THAT(trace, Not(HasSubstr("\"norms\"")));  // did not run
  EXPECT_THAT(trace,
              HasSubstr("\"traceparents\":{\"1\":\"00-4bf92f3577b34da6a3ce929"
                        "d0e0e4736-00f067aa0ba902b7-01\"}"));
  EXPECT_THAT(trace, HasSubstr("\"last_rank\":1"));
  EXPECT_THAT(trace,
              HasSubstr("\"orthogonality\":0.8,\"gain\":1.7,\"loss\":0.75,"
                        "\"learning_rate\":0.15,"));
}

TEST(ChromeTraceTest, NoRoundsYet) {
  EXPECT_THAT(ChromeTrace("digits", {}), HasSubstr("\"traceEvents\":[{"));
}

}  // namespace
}  // namespace agg
