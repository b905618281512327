// Pipelined rounds (P43) through real servers: versions come while rows are on
// their way, and what hostile workers make of them.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wave_plan.h"
#include "tests/e2e/loopback_job.h"
#include "tests/e2e/raw_worker.h"

namespace agg {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// A tensor of each shard, and a small one: two waves and a rest.
Manifest ThreeWaves() {
  return ShapedManifest({{kMinWaveElements}, {kMinWaveElements}, {3}});
}

std::unique_ptr<LoopbackJob> StartJob(int num_shards, int num_workers,
                                      const std::string& publish) {
  return std::make_unique<LoopbackJob>(
      num_shards,
      absl::StrCat("workers: ", num_workers,
                   " combination { rule: \"sum\" } learning_rate { rate: 0.5 }"
                   " replication: \"none\" publish: \"",
                   publish, "\""));
}

std::vector<v1::PushFrame> Row(const RawWorker& worker, int shard,
                               uint64_t round) {
  return worker.SplitBySlice(worker.Frame(shard, round));
}

// The frames [begin, end) of the row.
void Send(RawWorker* worker, int shard, uint64_t round, size_t begin,
          size_t end) {
  const std::vector<v1::PushFrame> row = Row(*worker, shard, round);
  for (size_t i = begin; i < end && i < row.size(); ++i) {
    worker->Send(shard, row[i]);
  }
}

TEST(PipelinedTest, FramesOfTheVersionComeBeforeTheRowIsSent) {
  for (const int num_shards : {1, 2}) {
    const auto job = StartJob(num_shards, 1, "pipelined");
    RawWorker worker(job->coordinator(), 0, ThreeWaves());
    EXPECT_TRUE(worker.pipelined());
    for (uint64_t round = 0; round < 2; ++round) {
      for (int shard = 0; shard < num_shards; ++shard) {
        Send(&worker, shard, round, 0, 1);
      }
      // Shard 0 has the first tensor alone in its first wave.
      const v1::PushAck first = worker.Receive(0);
      ASSERT_TRUE(first.has_meta());
      EXPECT_EQ(first.meta().round(), round + 1);
      EXPECT_EQ(first.meta().slices(0), 0u);
      EXPECT_FALSE(first.last());
      float value = 0;
      std::memcpy(&value, first.payload().data(), sizeof(value));
      EXPECT_EQ(value, 1.0f - 0.5f * static_cast<float>(round + 1));
      for (int shard = 0; shard < num_shards; ++shard) {
        Send(&worker, shard, round, 1, 10);
      }
      const std::string version = absl::StrCat("version ", round + 1);
      EXPECT_THAT(worker.ReceiveAll(0, 3), Contains(version));
      EXPECT_TRUE(worker.last_outcome().included());
      EXPECT_EQ(worker.last_outcome().message(), "");
      if (num_shards == 2) {
        EXPECT_THAT(worker.ReceiveAll(1, 1), Contains(version));
      }
    }
  }
}

TEST(PipelinedTest, ARowWithReportsIsNotAcknowledged) {
  const auto job = StartJob(1, 1, "pipelined");
  RawWorker worker(job->coordinator(), 0, ThreeWaves());
  for (v1::PushFrame& frame : Row(worker, 0, 0)) {
    frame.mutable_meta()->set_report(true);
    worker.Send(0, frame);
  }
  EXPECT_THAT(worker.ReceiveAll(0, 2),
              UnorderedElementsAre("outcome 0.0 in", "version 1"));
}

TEST(PipelinedTest, OrdinaryWorkersGetTheSameParameters) {
  for (const int num_shards : {1, 2}) {
    const auto atomic = StartJob(num_shards, 2, "atomic");
    const auto pipelined = StartJob(num_shards, 2, "pipelined");
    Train(*atomic, ThreeWaves(), 2, 3);
    Train(*pipelined, ThreeWaves(), 2, 3);
    EXPECT_EQ(pipelined->Parameters(ThreeWaves()),
              atomic->Parameters(ThreeWaves()));
  }
}

TEST(PipelinedTest, ACommitWithoutARowHoldsTheRoundNoLongerThanItsWorker) {
  const auto job = StartJob(1, 2, "pipelined");
  RawWorker honest(job->coordinator(), 0, ThreeWaves());
  RawWorker liar(job->coordinator(), 1, ThreeWaves());
  v1::PushFrame announcement = Row(liar, 0, 0).back();
  *announcement.mutable_commit() = liar.Frame(0, 0).commit();
  liar.Send(0, announcement);  // its last slice alone
  Send(&honest, 0, 0, 0, 10);
  EXPECT_FALSE(honest.Committed(1));
  EXPECT_TRUE(liar.Leave().ok());
  EXPECT_THAT(honest.ReceiveAll(0, 3), Contains("outcome 0.0 in"));
  EXPECT_EQ(honest.last_outcome().excluded_ranks_size(), 0);
}

TEST(PipelinedTest, AnotherAttemptEndsTheStreamOnceWavesRun) {
  const auto job = StartJob(1, 1, "pipelined");
  RawWorker worker(job->coordinator(), 0, ThreeWaves());
  Send(&worker, 0, 0, 0, 1);
  worker.Receive(0);  // the first wave
  worker.Send(0, worker.SplitBySlice(worker.Frame(0, 0, 1))[0]);
  const grpc::Status status = worker.End(0);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              HasSubstr("being published with attempt 0"));
  // The row goes on as it began.
  Send(&worker, 0, 0, 0, 10);
  EXPECT_THAT(worker.ReceiveAll(0, 3), Contains("outcome 0.0 in"));
}

}  // namespace
}  // namespace agg
