// Rounds of one trip (P41) through real servers: what comes back, in which
// orders frames, commits, reports and ends of rounds may meet, and what is
// refused.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/loopback_job.h"
#include "tests/e2e/raw_worker.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// With two shards each has one tensor.
Manifest TwoTensors() { return ShapedManifest({{3}, {2}}); }

std::unique_ptr<LoopbackJob> StartJob(int num_shards, int num_workers,
                                      const std::string& more = "") {
  return std::make_unique<LoopbackJob>(
      num_shards, absl::StrCat("workers: ", num_workers,
                               " combination { rule: \"sum\" } optimizer { "
                               "kind: \"none\" } ",
                               more));
}

void SendRow(RawWorker* worker, uint64_t round, uint32_t attempt = 0) {
  for (int shard = 0; shard < worker->num_shards(); ++shard) {
    worker->Send(shard, worker->Frame(shard, round, attempt));
  }
}

TEST(OneTripTest, OutcomeAndVersionComeWithoutAcknowledgements) {
  for (const int num_shards : {1, 2}) {
    const auto job = StartJob(num_shards, 1);
    RawWorker worker(job->coordinator(), 0, TwoTensors());
    for (uint64_t round = 0; round < 3; ++round) {
      SendRow(&worker, round);
      EXPECT_THAT(worker.ReceiveAll(0, 2),
                  UnorderedElementsAre(absl::StrCat("outcome ", round, ".0 in"),
                                       absl::StrCat("version ", round + 1)));
      for (int shard = 1; shard < num_shards; ++shard) {
        EXPECT_THAT(worker.ReceiveAll(shard, 1),
                    ElementsAre(absl::StrCat("version ", round + 1)));
      }
    }
  }
}

TEST(OneTripTest, TheVersionIsTheOneOfTheRound) {
  const auto job = StartJob(1, 1);
  RawWorker worker(job->coordinator(), 0, TwoTensors());
  SendRow(&worker, 0);
  std::string payload;
  for (bool last = false; !last;) {
    const v1::PushAck ack = worker.Receive(0);
    EXPECT_EQ(ack.meta().crc32c_size(), ack.has_meta() ? 2 : 0);
    payload += ack.payload();
    last = ack.last();
  }
  const std::vector<float> ones(5, 1.0f);
  EXPECT_EQ(payload, std::string(reinterpret_cast<const char*>(ones.data()),
                                 ones.size() * sizeof(float)));
}

TEST(OneTripTest, ARoundMayMixOneTripAndOrdinaryCalls) {
  const auto job = StartJob(2, 2);
  RawWorker worker(job->coordinator(), 0, TwoTensors());
  const auto other = job->Connect(1, TwoTensors());
  HostTensors parameters = MakeTensors(TwoTensors(), 1);
  ASSERT_TRUE(other->SeedOrPull(MutableViews(&parameters)).ok());
  SendRow(&worker, 0);
  const HostTensors gradient = {{1, 1, 1}, {1, 1}};
  const auto outcome =
      other->PushPull(Views(gradient), {}, MutableViews(&parameters));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(parameters, (HostTensors{{2, 2, 2}, {2, 2}}));
  EXPECT_THAT(worker.ReceiveAll(0, 2),
              UnorderedElementsAre("outcome 0.0 in", "version 1"));
}

// Two shards and two workers.
struct Interleaving {
  std::string name;
  std::function<void(RawWorker* first, RawWorker* second)> act;
  // What the first worker gets on shard 0 and 1, in any order.
  std::vector<std::string> shard0, shard1;
};

std::vector<Interleaving> Interleavings() {
  const auto frame = [](RawWorker* worker, int shard, uint32_t attempt = 0) {
    worker->Send(shard, worker->Frame(shard, 0, attempt));
  };
  const auto plain = [](RawWorker* worker, int shard, uint32_t attempt = 0) {
    v1::PushFrame row = worker->Frame(shard, 0, attempt);
    row.clear_commit();
    row.clear_pull();
    row.mutable_meta()->set_report(false);
    worker->Send(shard, row);
    worker->Receive(shard);
  };
  const std::vector<std::string> round = {"outcome 0.0 in", "version 1"};
  return {
      {"the report comes last",
       [=](RawWorker* first, RawWorker* second) {
         SendRow(second, 0);
         second->AwaitCommitted(1);
         frame(first, 0);
         EXPECT_FALSE(first->Committed(0));
         frame(first, 1);
       },
       round,
       {"version 1"}},
      {"the report comes first",
       [=](RawWorker* first, RawWorker* second) {
         frame(first, 1);
         EXPECT_FALSE(first->Committed(0));
         frame(first, 0);
         first->AwaitCommitted(0);
         SendRow(second, 0);
       },
       round,
       {"version 1"}},
      {"a frame that repeats what has landed reports again",
       [=](RawWorker* first, RawWorker* second) {
         plain(first, 1);
         frame(first, 0);
         EXPECT_FALSE(first->Committed(0));
         frame(first, 1);
         first->AwaitCommitted(0);
         SendRow(second, 0);
       },
       round,
       {"version 1"}},
      {"a higher attempt takes over before the reports are there",
       [=](RawWorker* first, RawWorker* second) {
         frame(first, 0);
         SendRow(first, 0, 1);
         first->AwaitCommitted(0);
         SendRow(second, 0);
       },
       {"outcome 0.0 out", "outcome 0.1 in", "version 1"},
       {"version 1"}},
      {"the same commit comes twice",
       [=](RawWorker* first, RawWorker* second) {
         SendRow(first, 0);
         frame(first, 0);
         plain(first, 0);  // so the second commit has come
         first->AwaitCommitted(0);
         SendRow(second, 0);
       },
       {"outcome 0.0 in", "outcome 0.0 in", "version 1"},
       {"version 1"}},
  };
}

TEST(OneTripTest, OrdersOfFramesCommitsAndReports) {
  for (const Interleaving& c : Interleavings()) {
    SCOPED_TRACE(c.name);
    const auto job = StartJob(2, 2);
    RawWorker first(job->coordinator(), 0, TwoTensors());
    RawWorker second(job->coordinator(), 1, TwoTensors());
    c.act(&first, &second);
    EXPECT_THAT(first.ReceiveAll(0, c.shard0.size()),
                ::testing::UnorderedElementsAreArray(c.shard0));
    EXPECT_THAT(first.ReceiveAll(1, c.shard1.size()),
                ::testing::UnorderedElementsAreArray(c.shard1));
  }
}

TEST(OneTripTest, ALateRowHearsThatItIsNotIn) {
  const auto job = StartJob(2, 2, "quorum: 1");
  RawWorker first(job->coordinator(), 0, TwoTensors());
  RawWorker second(job->coordinator(), 1, TwoTensors());
  SendRow(&first, 0);
  EXPECT_THAT(first.ReceiveAll(0, 2),
              UnorderedElementsAre("outcome 0.0 in", "version 1"));
  SendRow(&second, 0);
  EXPECT_THAT(
      second.ReceiveAll(0, 3),
      UnorderedElementsAre("closed 0.0", "outcome 0.0 out", "version 1"));
  EXPECT_THAT(second.ReceiveAll(1, 2),
              UnorderedElementsAre("closed 0.0", "version 1"));
}

// The round ends without a row whose report never comes.
TEST(OneTripTest, ACommitThatWaitsForReportsEndsWithTheRound) {
  const auto job = StartJob(2, 2, "quorum: 1");
  RawWorker first(job->coordinator(), 0, TwoTensors());
  RawWorker second(job->coordinator(), 1, TwoTensors());
  v1::PushFrame frame = second.Frame(0, 0);
  second.Send(0, frame);
  frame.clear_commit();
  frame.clear_pull();
  second.Send(0, frame);
  second.Receive(0);  // so the commit has come
  SendRow(&first, 0);
  EXPECT_THAT(second.ReceiveAll(0, 2),
              UnorderedElementsAre("outcome 0.0 out", "version 1"));
}

TEST(OneTripTest, LeaveTakesOutARowThatIsNotReported) {
  const auto job = StartJob(2, 2);
  RawWorker first(job->coordinator(), 0, TwoTensors());
  RawWorker second(job->coordinator(), 1, TwoTensors());
  first.Send(0, first.Frame(0, 0));
  EXPECT_TRUE(first.Leave().ok());
  const grpc::Status status = first.End(0);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_THAT(status.error_message(), HasSubstr("has left"));
  SendRow(&second, 0);
  EXPECT_THAT(second.ReceiveAll(0, 2),
              UnorderedElementsAre("outcome 0.0 in", "version 1"));
  EXPECT_THAT(second.last_outcome().ranks(), ElementsAre(1));
}

TEST(OneTripTest, ALostShardEndsTheStreams) {
  const auto job = StartJob(2, 1);
  RawWorker worker(job->coordinator(), 0, TwoTensors());
  worker.Send(0, worker.Frame(0, 0));
  job->Stop(1);
  const grpc::Status status = worker.End(0);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("shard 1"));
}

TEST(OneTripTest, TheLastRoundBringsItsVersion) {
  const auto job = StartJob(1, 1, "max_rounds: 1");
  RawWorker worker(job->coordinator(), 0, TwoTensors());
  SendRow(&worker, 0);
  EXPECT_THAT(worker.ReceiveAll(0, 2),
              UnorderedElementsAre("outcome 0.0 in", "version 1"));
  EXPECT_TRUE(worker.last_outcome().finished());
  SendRow(&worker, 1);
  const grpc::Status status = worker.End(0);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("finished"));
}

TEST(OneTripTest, ACommitOfARowThatIsIncompleteHereIsRefused) {
  const auto job = StartJob(1, 1);
  RawWorker worker(job->coordinator(), 0, TwoTensors());
  v1::PushFrame half = worker.Frame(0, 0);
  half.mutable_meta()->mutable_slices()->Truncate(1);
  half.mutable_meta()->mutable_crc32c()->Truncate(1);
  half.mutable_payload()->resize(3 * sizeof(float));
  worker.Send(0, half);
  const grpc::Status status = worker.End(0);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(),
              HasSubstr("its push is incomplete on shard 0"));
  SendRow(&worker, 0);
  EXPECT_THAT(worker.ReceiveAll(0, 2),
              UnorderedElementsAre("outcome 0.0 in", "version 1"));
}

struct Refusal {
  std::string name;
  int shard;
  std::function<void(v1::PushFrame*)> edit;
  grpc::StatusCode code;
  std::string message;
};

TEST(OneTripTest, WhatDoesNotBelongToTheFrameIsRefused) {
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  constexpr auto kFailed = grpc::StatusCode::FAILED_PRECONDITION;
  using Frame = v1::PushFrame;
  const std::vector<Refusal> cases = {
      {"epoch", 0, [](Frame* f) { f->mutable_commit()->set_epoch(1); },
       kInvalid, "commit.epoch is 1; allowed: "},
      {"session", 0, [](Frame* f) { f->mutable_commit()->set_session(9); },
       kInvalid, "commit.session is 9; allowed: "},
      {"round", 0, [](Frame* f) { f->mutable_commit()->set_round(7); },
       kInvalid, "commit.round is 7; allowed: 0"},
      {"attempt", 0, [](Frame* f) { f->mutable_commit()->set_attempt(2); },
       kInvalid, "commit.attempt is 2; allowed: 0"},
      {"kind", 0, [](Frame* f) { f->mutable_commit()->set_kind(v1::SEED); },
       kInvalid, "commit.kind is 1; allowed: 0"},
      {"a seed", 0, [](Frame* f) { f->mutable_meta()->set_kind(v1::SEED); },
       kInvalid, "meta.kind is SEED (1) in a frame with commit or pull"},
      {"another version", 0,
       [](Frame* f) { f->mutable_pull()->set_version(2); }, kInvalid,
       "pull.version is 2; allowed: 1"},
      {"the latest", 0, [](Frame* f) { f->mutable_pull()->set_latest(true); },
       kInvalid, "pull.latest is 1; allowed: 0"},
      {"another epoch", 0, [](Frame* f) { f->mutable_pull()->set_epoch(3); },
       kInvalid, "pull.epoch is 3; allowed: "},
      {"a dtype", 0,
       [](Frame* f) { f->mutable_pull()->set_dtype(v1::DTYPE_UNSPECIFIED); },
       kInvalid, "dtype is 0"},
      {"checksums", 0, [](Frame* f) { f->mutable_commit()->add_row_crc32c(1); },
       kInvalid, "row_crc32c"},
      {"a sum", 0,
       [](Frame* f) { f->mutable_commit()->set_micro_norm_squared_sum(-1); },
       kInvalid, "micro_norm_squared_sum"},
      {"another shard", 1,
       [](Frame* f) {
         v1::CommitRequest* commit = f->mutable_commit();
         commit->set_epoch(f->meta().epoch());
         commit->set_session(f->meta().session());
       },
       kFailed, "is not the coordinator"},
  };
  const auto job = StartJob(2, 1);
  RawWorker worker(job->coordinator(), 0, TwoTensors());
  for (const Refusal& c : cases) {
    v1::PushFrame frame = worker.Frame(c.shard, 0);
    c.edit(&frame);
    worker.Send(c.shard, frame);
    const grpc::Status status = worker.End(c.shard);
    EXPECT_EQ(status.error_code(), c.code) << c.name;
    EXPECT_THAT(status.error_message(), HasSubstr(c.message)) << c.name;
  }
  // None of it has hurt the job.
  EXPECT_FALSE(worker.Committed(0));
  SendRow(&worker, 0);
  EXPECT_THAT(worker.ReceiveAll(0, 2),
              UnorderedElementsAre("outcome 0.0 in", "version 1"));
}

}  // namespace
}  // namespace agg
