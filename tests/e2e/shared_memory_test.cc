// Rows and parameters in shared memory: real servers and clients on one host,
// whose results are compared with those over TCP.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/params/shared_buffer.h"
#include "tests/e2e/loopback_job.h"
#include "tests/server/base/no_large_files.h"

namespace agg {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kShards = 2;
constexpr int kWorkers = 3;
constexpr int kRounds = 3;
constexpr char kConfig[] =
    "workers: 3 learning_rate { rate: 0.1 } combination { rule: 'adasum' } ";

// Two slices and small ones.
Manifest MixedManifest() {
  Manifest manifest = ShapedManifest({{3, 350000}, {7}, {}, {5}});
  manifest.tensors[3].optional = true;
  return manifest;
}

ClientOptions OptionsOver(const LoopbackJob& job, int rank, bool shared) {
  ClientOptions options = job.Options(rank, MixedManifest());
  options.shared_memory = shared;
  options.local_sockets = shared;
  options.error_feedback = true;  // where rows are rounded
  options.copy_threads = 3;
  return options;
}

// kRounds rounds by kWorkers workers, of which one leaves out the optional
// tensor; the parameters of rank 0. `expected`: how bytes travel.
HostTensors Train(const LoopbackJob& job, bool shared, const char* expected) {
  std::vector<HostTensors> results(kWorkers);
  RunWorkers(kWorkers, [&](int rank) {
    auto client = AggClient::Connect(OptionsOver(job, rank, shared));
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_THAT((*client)->job().transports, Each(std::string(expected)));
    const Manifest manifest = MixedManifest();
    HostTensors parameters = MakeTensors(manifest, 7);
    ASSERT_TRUE((*client)->SeedOrPull(MutableViews(&parameters)).ok());
    for (int round = 0; round < kRounds; ++round) {
      const HostTensors row = MakeTensors(manifest, 100 * round + rank);
      std::vector<TensorView> views = Views(row);
      if (rank == 1) views[3] = TensorView();
      const absl::StatusOr<RoundOutcome> outcome =
          (*client)->PushPull(views, {}, MutableViews(&parameters));
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_TRUE(outcome->included) << outcome->message;
    }
    results[rank] = parameters;
  });
  for (const HostTensors& result : results) EXPECT_EQ(result, results[0]);
  return results[0];
}

class SharedMemory : public testing::TestWithParam<const char*> {
 protected:
  std::string config() const { return std::string(kConfig) + GetParam(); }
};

TEST_P(SharedMemory, GivesTheBitsThatTcpGives) {
  const LoopbackJob shared(kShards, config());
  const LoopbackJob sent(kShards, config());
  EXPECT_EQ(Train(shared, true, "shm"), Train(sent, false, "tcp"));
}

INSTANTIATE_TEST_SUITE_P(DTypes, SharedMemory,
                         testing::Values("", "push_dtype: 'bf16'",
                                         "pull_dtype: 'bf16'",
                                         "push_dtype: 'int8'",
                                         "push_dtype: 'f16' pull_dtype: 'f16'",
                                         "replication: 'none'"));

TEST(SharedMemoryTest, ASecondGradientOfARoundReplacesTheFirst) {
  const std::string config = "workers: 1 learning_rate { rate: 1 } ";
  const Manifest manifest = MixedManifest();
  const auto run = [&](const LoopbackJob& job, bool shared) {
    auto client = *AggClient::Connect(OptionsOver(job, 0, shared));
    HostTensors parameters = MakeTensors(manifest, 7);
    EXPECT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
    for (uint64_t round = 0; round < 3; ++round) {
      for (const uint64_t gradient : {10 * round, 10 * round + 1}) {
        EXPECT_TRUE(client->Push(Views(MakeTensors(manifest, gradient))).ok());
      }
      const absl::StatusOr<RoundOutcome> outcome = client->Commit({});
      EXPECT_TRUE(outcome.ok() && outcome->included);
      EXPECT_TRUE(client->Pull(round + 1, MutableViews(&parameters)).ok());
    }
    return parameters;
  };
  const LoopbackJob shared(kShards, config);
  const LoopbackJob sent(kShards, config);
  EXPECT_EQ(run(shared, true), run(sent, false));
}

// So small that rows go in one trip.
TEST(SharedMemoryTest, ARoundOfOneTripGivesTheBitsThatTcpGives) {
  const std::string config =
      "workers: 1 learning_rate { rate: 0.1 } push_dtype: 'bf16' ";
  const Manifest manifest = ShapedManifest({{300}, {7}, {40}});
  const auto run = [&](const LoopbackJob& job, bool shared) {
    ClientOptions options = OptionsOver(job, 0, shared);
    options.manifest = manifest;
    auto client = *AggClient::Connect(options);
    HostTensors parameters = MakeTensors(manifest, 7);
    EXPECT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
    for (uint64_t round = 0; round < 5; ++round) {
      const HostTensors row = MakeTensors(manifest, round);
      const absl::StatusOr<RoundOutcome> outcome =
          client->PushPull(Views(row), {}, MutableViews(&parameters));
      EXPECT_TRUE(outcome.ok() && outcome->included);
    }
    return parameters;
  };
  const LoopbackJob shared(kShards, config);
  const LoopbackJob sent(kShards, config);
  EXPECT_EQ(run(shared, true), run(sent, false));
}

// Slices are written as their tensors come, and tensors that are wanted first
// are there while others are still copied.
TEST(SharedMemoryTest, ARowGrowsThere) {
  const std::string config = "workers: 1 learning_rate { rate: 0.1 } ";
  const Manifest manifest = MixedManifest();
  const auto run = [&](const LoopbackJob& job, bool shared) {
    auto client = *AggClient::Connect(OptionsOver(job, 0, shared));
    HostTensors parameters = MakeTensors(manifest, 7);
    EXPECT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
    for (uint64_t round = 0; round < 3; ++round) {
      const HostTensors row = MakeTensors(manifest, round);
      const std::vector<TensorView> views = Views(row);
      // The optional one, the last, is in no row.
      for (size_t t = manifest.tensors.size() - 1; t-- > 0;) {
        TensorView view = views[t];
        view.name = manifest.tensors[t].name;
        client->StartPush({view});
      }
      const absl::Status committed = client->StartCommit({}).Wait();
      EXPECT_TRUE(committed.ok()) << committed;
      PullOptions first;
      first.first = {manifest.tensors[2].name, manifest.tensors[0].name};
      PullOperation pull =
          client->StartPull(round + 1, MutableViews(&parameters), first);
      const absl::Status there = pull.WaitForTensor(manifest.tensors[2].name);
      EXPECT_TRUE(there.ok()) << there;
      EXPECT_TRUE(pull.Wait().ok());
    }
    return parameters;
  };
  const LoopbackJob shared(kShards, config);
  const LoopbackJob sent(kShards, config);
  EXPECT_EQ(run(shared, true), run(sent, false));
}

TEST(SharedMemoryTest, EitherSideMayRefuse) {
  const std::string config = "workers: 1 learning_rate { rate: 1 } ";
  const LoopbackJob off(kShards, config + "shared_memory: 'off'");
  ClientOptions options = off.Options(0, MixedManifest());
  EXPECT_THAT((*AggClient::Connect(options))->job().transports,
              Each(std::string("unix")));
  const LoopbackJob on(kShards, config);
  options = on.Options(0, MixedManifest());
  options.shared_memory = false;
  EXPECT_THAT((*AggClient::Connect(options))->job().transports,
              Each(std::string("unix")));
}

// Rows and versions are private then, workers use sockets, and the counts say
// so.
TEST(SharedMemoryTest, AServerThatMayNotShareTrainsOn) {
  const LoopbackJob sent(1, kConfig);
  const HostTensors expected = Train(sent, false, "tcp");
  const LoopbackJob job(1, kConfig);
  const SharedFallbacks before = CountSharedFallbacks();
  const NoLargeFiles limit;
  EXPECT_EQ(Train(job, true, "unix"), expected);
  const SharedFallbacks after = CountSharedFallbacks();
  EXPECT_EQ(after.rows_refused - before.rows_refused, kWorkers);
  EXPECT_GE(after.versions_refused - before.versions_refused, 3);
}

TEST(SharedMemoryTest, AnObserverReadsVersionsThere) {
  const LoopbackJob job(kShards, "workers: 1 learning_rate { rate: 1 } ");
  const Manifest manifest = MixedManifest();
  auto worker = *AggClient::Connect(OptionsOver(job, 0, true));
  HostTensors parameters = MakeTensors(manifest, 7);
  ASSERT_TRUE(worker->SeedOrPull(MutableViews(&parameters)).ok());
  EXPECT_THAT(job.Observe()->job().transports, Each(std::string("shm")));
  EXPECT_EQ(job.Parameters(manifest), parameters);
}

void Copy(const HostTensors& from, const std::vector<MutableTensorView>& to) {
  ASSERT_EQ(from.size(), to.size());
  for (size_t t = 0; t < from.size(); ++t) {
    ASSERT_EQ(static_cast<int64_t>(from[t].size()), to[t].num_elements);
    std::copy(from[t].begin(), from[t].end(), to[t].data);
  }
}

std::vector<TensorView> Const(const std::vector<MutableTensorView>& views) {
  std::vector<TensorView> result;
  for (const MutableTensorView& view : views) {
    result.emplace_back(absl::MakeConstSpan(view.data, view.num_elements));
  }
  return result;
}

HostTensors Read(const VersionView& view) {
  HostTensors tensors;
  for (const TensorView& tensor : view.tensors()) {
    const auto* const begin = static_cast<const float*>(tensor.data);
    tensors.emplace_back(begin, begin + tensor.num_elements);
  }
  return tensors;
}

TEST(SharedMemoryTest, RowsAndVersionsAreUsedWhereTheyLie) {
  const std::string config = "workers: 1 learning_rate { rate: 0.1 } ";
  const Manifest manifest = MixedManifest();
  const LoopbackJob shared(1, config);
  const LoopbackJob sent(1, config);
  auto worker = *AggClient::Connect(OptionsOver(shared, 0, true));
  auto other = *AggClient::Connect(OptionsOver(sent, 0, false));
  HostTensors parameters = MakeTensors(manifest, 7);
  ASSERT_TRUE(worker->SeedOrPull(MutableViews(&parameters)).ok());
  ASSERT_TRUE(other->SeedOrPull(MutableViews(&parameters)).ok());
  const auto row = worker->RowTensors();
  ASSERT_TRUE(row.ok()) << row.status();
  std::unique_ptr<VersionView> view = *worker->PullView(0);
  EXPECT_EQ(Read(*view), parameters);
  for (uint64_t round = 0; round < 3; ++round) {
    const HostTensors gradient = MakeTensors(manifest, round);
    Copy(gradient, *row);
    ASSERT_TRUE(worker->Push(Const(*row)).ok());
    const absl::StatusOr<RoundOutcome> outcome = worker->Commit({});
    ASSERT_TRUE(outcome.ok() && outcome->included);
    ASSERT_TRUE(
        other->PushPull(Views(gradient), {}, MutableViews(&parameters)).ok());
    auto next = worker->PullView(outcome->version);
    ASSERT_TRUE(next.ok()) << next.status();
    view = *std::move(next);
    EXPECT_EQ(view->version(), round + 1);
    EXPECT_EQ(Read(*view), parameters);
    EXPECT_TRUE(view->valid());
  }
}

// The shard needs the memory, and does not wait for a reader that holds it.
TEST(SharedMemoryTest, AViewThatIsHeldForTooLongIsNotValidAnyMore) {
  const LoopbackJob job(1, "workers: 1 learning_rate { rate: 0.1 } ");
  const Manifest manifest = MixedManifest();
  auto worker = *AggClient::Connect(OptionsOver(job, 0, true));
  HostTensors parameters = MakeTensors(manifest, 7);
  ASSERT_TRUE(worker->SeedOrPull(MutableViews(&parameters)).ok());
  const auto view = worker->PullView(0);
  ASSERT_TRUE(view.ok()) << view.status();
  for (uint64_t round = 0; round < 4; ++round) {
    EXPECT_TRUE((*view)->valid() || round > 1);
    ASSERT_TRUE(worker
                    ->PushPull(Views(MakeTensors(manifest, round)), {},
                               MutableViews(&parameters))
                    .ok());
  }
  EXPECT_FALSE((*view)->valid());
}

TEST(SharedMemoryTest, ATensorInPiecesIsNamed) {
  const LoopbackJob job(kShards, "workers: 1 learning_rate { rate: 0.1 } ");
  const Manifest manifest = MixedManifest();
  auto worker = *AggClient::Connect(OptionsOver(job, 0, true));
  const absl::Status refused = worker->RowTensors().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(refused.message(),
              HasSubstr("tensor \"t0\" does not lie in one"));
}

TEST(SharedMemoryTest, WhereNothingIsSharedNothingIsUsedInPlace) {
  const LoopbackJob job(1, "workers: 1 learning_rate { rate: 0.1 } ");
  auto worker = *AggClient::Connect(OptionsOver(job, 0, false));
  HostTensors parameters = MakeTensors(MixedManifest(), 7);
  ASSERT_TRUE(worker->SeedOrPull(MutableViews(&parameters)).ok());
  EXPECT_THAT(worker->RowTensors().status().message(),
              HasSubstr("shares no row with this worker"));
  EXPECT_THAT(worker->PullView(0).status().message(),
              HasSubstr("does not share this version's memory"));
}

// A worker that is started again has a row of its own, shard by shard.
TEST(SharedMemoryTest, ARankThatIsTakenOverGoesOn) {
  const LoopbackJob job(kShards, "workers: 1 learning_rate { rate: 1 } ");
  const Manifest manifest = MixedManifest();
  auto former = *AggClient::Connect(OptionsOver(job, 0, true));
  HostTensors parameters = MakeTensors(manifest, 7);
  ASSERT_TRUE(former->SeedOrPull(MutableViews(&parameters)).ok());
  ASSERT_TRUE(former->Push(Views(MakeTensors(manifest, 1))).ok());
  auto next = *AggClient::Connect(OptionsOver(job, 0, true));
  EXPECT_THAT(next->job().transports, Each(std::string("shm")));
  ASSERT_TRUE(next->SeedOrPull(MutableViews(&parameters)).ok());
  for (uint64_t round = 0; round < 3; ++round) {
    HostTensors expected = parameters;
    const HostTensors row = MakeTensors(manifest, 2 + round);
    ASSERT_TRUE(next->PushPull(Views(row), {}, MutableViews(&parameters)).ok());
    for (size_t t = 0; t < row.size(); ++t) {
      for (size_t e = 0; e < row[t].size(); ++e) expected[t][e] -= row[t][e];
    }
    EXPECT_EQ(parameters, expected);
  }
}

}  // namespace
}  // namespace agg
