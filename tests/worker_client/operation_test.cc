// Operations of a client against a job in this process.
#include "worker_client/operation.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/agg_client.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Tensors = std::vector<std::vector<float>>;

TensorView Named(const Manifest& manifest, const Tensors& tensors, size_t i) {
  return TensorView(manifest.tensors[i].name, tensors[i]);
}

class OperationTest : public ::testing::TestWithParam<DType> {
 protected:
  OperationTest() : job(manifest, JobOptions()) {
    client = Connect(OptionsFor(job, manifest));
    parameters = seed;
    EXPECT_TRUE(client->SeedOrPull(Write(&parameters)).ok());
  }
  static FakeJob::Options JobOptions() {
    FakeJob::Options options;
    options.num_shards = 2;
    options.push_dtype = options.pull_dtype = GetParam();
    return options;
  }

  const Manifest manifest = MixedManifest();
  const Tensors seed = Values(manifest, 1);
  const Tensors gradient = Values(manifest, 0.25f);
  FakeJob job;
  Tensors parameters;
  std::unique_ptr<AggClient> client;
};

TEST_P(OperationTest, TensorsInReverseOrderGiveTheBitsOfABlockingRound) {
  FakeJob other(manifest, JobOptions());
  auto blocking = Connect(OptionsFor(other, manifest));
  Tensors expected = seed;
  ASSERT_TRUE(blocking->SeedOrPull(Write(&expected)).ok());
  auto views = Read(gradient);
  views[3] = TensorView();  // the optional one
  const auto known = blocking->PushPull(views, {}, Write(&expected));
  ASSERT_TRUE(known.ok()) << known.status();

  for (const size_t i : {4, 2, 1, 0}) {
    const Operation pushed = client->StartPush({Named(manifest, gradient, i)});
    EXPECT_TRUE(pushed.Status().ok()) << pushed.Status();
  }
  RoundOperation round = client->StartRound({}, {}, Write(&parameters));
  const auto outcome = round.Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(round.Done());
  EXPECT_TRUE(round.Status().ok());
  EXPECT_EQ(outcome->version, 1u);
  EXPECT_EQ(client->version(), 1u);
  EXPECT_EQ(parameters, expected);
  // The sums of the slices are those of the whole row.
  EXPECT_EQ(job.commit().SerializeAsString(),
            other.commit().SerializeAsString());
  EXPECT_GT(job.commit().row_crc32c_size(), 0);
}

TEST_P(OperationTest, PushCommitAndPullApart) {
  Operation pushed = client->StartPush(Read(gradient));
  EXPECT_TRUE(pushed.Wait().ok()) << pushed.Status();
  const auto outcome = client->StartCommit({}).Outcome();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->version, 1u);
  EXPECT_EQ(client->version(), 0u);
  PullOperation pull = client->StartPull(1, Write(&parameters));
  EXPECT_TRUE(pull.WaitUntil(absl::InfiniteFuture()));
  EXPECT_TRUE(pull.Status().ok()) << pull.Status();
  EXPECT_EQ(client->version(), 1u);
  Tensors full = Values(manifest, 0);
  ASSERT_TRUE(client->Pull(1, Write(&full)).ok());
  EXPECT_EQ(parameters, full);
}

INSTANTIATE_TEST_SUITE_P(All, OperationTest,
                         ::testing::Values(DType::kF32, DType::kBF16));

using Float32 = OperationTest;
INSTANTIATE_TEST_SUITE_P(F32, Float32, ::testing::Values(DType::kF32));

TEST_P(Float32, FramesGoOutWhileTensorsAreMissing) {
  const int seeded = job.frames(0) + job.frames(1);
  Operation pushed = client->StartPush({Named(manifest, gradient, 2)});
  job.AwaitFrames(seeded + 1);  // hangs if it waits for the others
  EXPECT_FALSE(pushed.Done());
  client->StartPush({Named(manifest, gradient, 0)});
  job.AwaitFrames(seeded + 2);
  EXPECT_FALSE(pushed.Done());
  // The rest of the row ends it.
  EXPECT_TRUE(
      client->StartRound({Named(manifest, gradient, 4)}, {}, Write(&parameters))
          .Wait()
          .ok());
  EXPECT_TRUE(pushed.Done());
}

TEST_P(Float32, WhatDoesNotFitIsRefusedAndTheRowIsAsBefore) {
  client->StartPush({Named(manifest, gradient, 0)});
  const Operation twice = client->StartPush(
      {Named(manifest, gradient, 2), Named(manifest, gradient, 0)});
  EXPECT_TRUE(twice.Done());
  EXPECT_TRUE(absl::IsInvalidArgument(twice.Status()));
  EXPECT_THAT(Message(twice.Status()), HasSubstr("\"big\" was given"));
  const Operation unknown =
      client->StartPush({TensorView("what", gradient[2])});
  EXPECT_THAT(Message(unknown.Status()), HasSubstr("\"what\""));
  const auto incomplete = client->StartCommit({}).Outcome();
  EXPECT_THAT(Message(incomplete.status()), HasSubstr("\"scalar\" is missing"));
  PullOptions first;
  first.first = {"what"};
  EXPECT_THAT(Message(client->StartPull(0, Write(&parameters), first).Status()),
              HasSubstr("first names the tensor \"what\""));
  EXPECT_TRUE(client
                  ->StartRound({Named(manifest, gradient, 2),
                                Named(manifest, gradient, 4)},
                               {}, Write(&parameters))
                  .Wait()
                  .ok());
}

TEST_P(Float32, ABlockingPushTakesTheOpenRowsPlace) {
  const Tensors other = Values(manifest, 9);  // the client's until it is done
  Operation pushed = client->StartPush({Named(manifest, other, 0)});
  const auto outcome = client->PushPull(Read(gradient), {}, Write(&parameters));
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(pushed.Done());
  EXPECT_TRUE(absl::IsCancelled(pushed.Status())) << pushed.Status();
}

TEST_P(Float32, TheFirstTensorsOfAPullCanBeUsedBeforeItsLast) {
  job.HoldPullsAfter(1);  // frame of each shard
  PullOptions options;
  options.first = {"w", "big"};
  PullOperation pull = client->StartPull(0, Write(&parameters), options);
  const std::vector<float> expected = seed[4];
  parameters[4].clear();
  parameters[4].resize(expected.size());
  ASSERT_TRUE(pull.WaitForTensor("w").ok());
  EXPECT_FALSE(pull.Done());
  EXPECT_TRUE(absl::IsInvalidArgument(pull.WaitForTensor("what", absl::Now())));
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      pull.WaitForTensor("big", absl::InfinitePast())));
  job.HoldPullsAfter(-1);
  EXPECT_TRUE(pull.WaitForTensor("big").ok());
  EXPECT_TRUE(pull.Wait().ok());
  EXPECT_TRUE(pull.WaitForTensor("empty").ok());
  EXPECT_EQ(parameters, seed);
}

TEST_P(Float32, CallbacksComeWithoutAnybodyWaiting) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> done;
  const auto note = [&](const char* name) {
    return [&, name] {
      std::lock_guard<std::mutex> lock(mutex);
      done.push_back(name);
      changed.notify_all();
    };
  };
  client->StartPush(Read(gradient)).OnDone(note("push"));
  RoundOperation commit = client->StartCommit({});
  commit.OnDone([&] {
    // A callback may begin the next operation.
    client->StartPull(1, Write(&parameters)).OnDone(note("pull"));
    note("commit")();
  });
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return done.size() == 3; });
  EXPECT_EQ(done.front(), "push");
  EXPECT_EQ(client->version(), 1u);
}

TEST_P(Float32, ACancelledCommitEndsAndItsMemoryIsFree) {
  job.HoldCommits();
  client->StartPush(Read(gradient));
  RoundOperation round = client->StartRound({}, {}, Write(&parameters));
  job.AwaitCommits(2);  // the seed's was the first
  EXPECT_FALSE(round.Done());
  round.Cancel();
  EXPECT_TRUE(absl::IsCancelled(round.Wait()));
  EXPECT_TRUE(absl::IsCancelled(round.Outcome().status()));
}

TEST_P(Float32, ACancelledRowIsNotTheOpenOne) {
  Operation row = client->StartPush({Named(manifest, gradient, 0)});
  row.Cancel();
  RoundOperation round =
      client->StartRound(Read(gradient), {}, Write(&parameters));
  EXPECT_EQ(round.Wait(), absl::OkStatus());
  EXPECT_TRUE(round.Outcome()->included);
}

TEST_P(Float32, WhatWaitsForItsTurnToPushCanBeCancelled) {
  job.StallPushes(0);
  const int before = job.frames(0) + job.frames(1);
  Operation first = client->StartPush(Read(gradient));
  Operation commit = client->StartCommit({});
  job.AwaitFrames(before + 1);  // the first has the turn
  Operation second = client->StartPush(Read(gradient));
  // So that it is likely to wait by now: what has not begun ends anyhow.
  EXPECT_TRUE(client->LatestVersion().ok());
  second.Cancel();
  EXPECT_TRUE(second.WaitUntil(absl::Now() + absl::Minutes(1)));
  EXPECT_TRUE(absl::IsCancelled(second.Status())) << second.Status();
  EXPECT_FALSE(first.Done());
  commit.Cancel();
  EXPECT_TRUE(absl::IsCancelled(commit.Wait()));
  EXPECT_TRUE(absl::IsCancelled(first.Wait()));
}

TEST_P(Float32, TheClientsEndIsTheEndOfItsOperations) {
  job.HoldCommits();
  Operation row = client->StartPush(Read(gradient));
  RoundOperation commit = client->StartCommit({});
  job.AwaitCommits(2);
  Operation open = client->StartPush({Named(manifest, gradient, 0)});
  PullOperation pull = client->StartPull(1, Write(&parameters));
  client.reset();
  EXPECT_TRUE(row.Status().ok());
  for (const Operation& operation :
       {static_cast<const Operation&>(commit), open,
        static_cast<const Operation&>(pull)}) {
    EXPECT_TRUE(operation.Done());
  }
  EXPECT_TRUE(absl::IsCancelled(commit.Status())) << commit.Status();
  EXPECT_TRUE(absl::IsCancelled(open.Status())) << open.Status();
  EXPECT_TRUE(absl::IsCancelled(pull.WaitForTensor("big")));
}

TEST_P(Float32, ManyThreadsGiveOneRow) {
  RoundOperation round;
  for (int r = 0; r < 5; ++r) {
    std::vector<std::thread> threads;
    for (const size_t i : {0, 1, 2, 4}) {
      threads.emplace_back([&, i] {
        EXPECT_TRUE(
            client->StartPush({Named(manifest, gradient, i)}).Status().ok());
        EXPECT_EQ(client->LatestVersion().value_or(77),
                  static_cast<uint64_t>(r));
      });
    }
    for (std::thread& thread : threads) thread.join();
    round = client->StartRound({}, {}, Write(&parameters));
    for (int i = 0; i < 3; ++i) {
      threads[i] = std::thread([&round] { EXPECT_TRUE(round.Wait().ok()); });
    }
    EXPECT_TRUE(round.WaitForTensor("w").ok());
    for (int i = 0; i < 3; ++i) threads[i].join();
    EXPECT_EQ(round.Outcome()->version, static_cast<uint64_t>(r) + 1);
  }
  Tensors expected = seed;
  for (int r = 0; r < 5; ++r) {
    for (const size_t i : {0, 1, 2, 4}) {
      for (size_t e = 0; e < expected[i].size(); ++e) {
        expected[i][e] -= gradient[i][e];
      }
    }
  }
  EXPECT_EQ(parameters, expected);
}

TEST_P(Float32, AnObserverPushesNothing) {
  ClientOptions options = OptionsFor(job, manifest);
  options.observer = true;
  const auto observer = Connect(options);
  EXPECT_TRUE(
      absl::IsFailedPrecondition(observer->StartPush(Read(gradient)).Status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      observer->StartRound(Read(gradient), {}, Write(&parameters)).Status()));
  EXPECT_TRUE(observer->StartPull(0, Write(&parameters)).Wait().ok());
}

TEST(OperationHandleTest, OneOfNothingIsDone) {
  RoundOperation nothing;
  EXPECT_TRUE(nothing.Done());
  EXPECT_TRUE(absl::IsFailedPrecondition(nothing.Wait()));
  EXPECT_TRUE(absl::IsFailedPrecondition(nothing.WaitForTensor("x")));
  EXPECT_TRUE(absl::IsFailedPrecondition(nothing.Outcome().status()));
  nothing.Cancel();
}

}  // namespace
}  // namespace agg
