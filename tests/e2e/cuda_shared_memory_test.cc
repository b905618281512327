// Rows and versions that workers map, with `backend: "cuda"`, on the emulated
// device: real servers and clients, compared with the same job over TCP.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shard_plan.h"
#include "server/params/shared_buffer.h"
#include "tests/e2e/cuda_device.h"
#include "tests/e2e/loopback_job.h"
#include "tests/kernels/cuda/emulator/device.h"
#include "tests/server/base/no_large_files.h"

namespace agg {
namespace {

using ::testing::Each;

constexpr int kShards = 2;
constexpr int kWorkers = 2;
constexpr int kRounds = 3;
constexpr char kConfig[] =
    "backend: \"cuda\" learning_rate { rate: 0.1 } "
    "combination { rule: \"adasum\" } ";

// So large that NoLargeFiles refuses its rows on either shard.
Manifest TheManifest() {
  Manifest manifest = ShapedManifest({{3, 50000}, {7}, {}, {5}});
  manifest.tensors[3].optional = true;
  return manifest;
}

std::unique_ptr<AggClient> Connect(const LoopbackJob& job, int rank,
                                   bool shared) {
  ClientOptions options = job.Options(rank, TheManifest());
  options.shared_memory = shared;
  options.local_sockets = shared;
  auto client = AggClient::Connect(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

// The parameters after some rounds, in which one worker leaves out the optional
// tensor. `expected`: how bytes travel.
HostTensors Train(const LoopbackJob& job, bool shared, const char* expected) {
  HostTensors result;
  RunWorkers(kWorkers, [&](int rank) {
    const auto client = Connect(job, rank, shared);
    ASSERT_NE(client, nullptr);
    EXPECT_THAT(client->job().transports, Each(std::string(expected)));
    HostTensors parameters = MakeTensors(TheManifest(), 7);
    ASSERT_TRUE(client->SeedOrPull(MutableViews(&parameters)).ok());
    for (int round = 0; round < kRounds; ++round) {
      const HostTensors row = MakeTensors(TheManifest(), 100 * round + rank);
      std::vector<TensorView> views = Views(row);
      if (rank == 1) views[3] = TensorView();
      const absl::StatusOr<RoundOutcome> outcome =
          client->PushPull(views, {}, MutableViews(&parameters));
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_TRUE(outcome->included) << outcome->message;
    }
    if (rank == 0) result = parameters;
  });
  return result;
}

LoopbackJob MakeJob(int num_shards, const std::string& more,
                    int num_workers = kWorkers) {
  return LoopbackJob(num_shards,
                     absl::StrCat(kConfig, "workers: ", num_workers, " ", more),
                     TheCudaDevice().make_backend);
}

class CudaSharedMemory : public testing::Test {
 protected:
  void SetUp() override {
    BeginRun(0);
    emulator::SetDeviceBytes(int64_t{1} << 40);
  }
  void TearDown() override { emulator::FailRegistering(cudaSuccess); }
};

class CudaSharedMemoryOf : public CudaSharedMemory,
                           public testing::WithParamInterface<const char*> {};

// Second copies go by way of staging memory when the job starts, however rows
// travel.
TEST_P(CudaSharedMemoryOf, GivesTheBitsThatTcpGivesAndStagesNoMore) {
  HostTensors sent;
  int64_t before = emulator::StagedBytes();
  {
    const LoopbackJob job = MakeJob(kShards, GetParam());
    sent = Train(job, false, "tcp");
  }
  const int64_t staged = emulator::StagedBytes() - before;
  for (int run = 0; run < 2; ++run) {  // lazy streams, and eager ones
    BeginRun(run);
    before = emulator::StagedBytes();
    const LoopbackJob job = MakeJob(kShards, GetParam());
    EXPECT_EQ(Train(job, true, "shm"), sent);
    EXPECT_EQ(emulator::StagedBytes() - before, staged);
  }
  EXPECT_EQ(emulator::NumRegistered(), 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaSharedMemoryOf,
                         testing::Values("", "push_dtype: 'bf16'",
                                         "push_dtype: 'int8'",
                                         "push_dtype: 'f16' pull_dtype: 'f16'",
                                         "replication: 'none'"));

// As with a limit of locked memory: still shared, and counted.
TEST_F(CudaSharedMemory, ThatCannotBeRegisteredTrainsOn) {
  const int64_t before_tcp = emulator::StagedBytes();
  HostTensors sent;
  {
    const LoopbackJob job = MakeJob(kShards, "");
    sent = Train(job, false, "tcp");
  }
  const int64_t staged_before = emulator::StagedBytes();
  emulator::FailRegistering(cudaErrorMemoryAllocation);
  const SharedFallbacks before = CountSharedFallbacks();
  const LoopbackJob job = MakeJob(kShards, "");
  EXPECT_EQ(Train(job, true, "shm"), sent);
  // Both workers' rows of each round, at least.
  const int64_t row_bytes = 4 * NumElements(TheManifest());
  EXPECT_GT(emulator::StagedBytes() - staged_before,
            staged_before - before_tcp + kRounds * kWorkers * row_bytes);
  const SharedFallbacks after = CountSharedFallbacks();
  EXPECT_EQ(after.rows_staged - before.rows_staged, kShards * kWorkers);
  EXPECT_GE(after.versions_staged - before.versions_staged, 3 * kShards);
  EXPECT_EQ(after.rows_no_memory, before.rows_no_memory);
}

TEST_F(CudaSharedMemory, ThatTheSystemRefusesIsPinnedMemoryOfTheServer) {
  HostTensors sent;
  {
    const LoopbackJob job = MakeJob(1, "");
    sent = Train(job, false, "tcp");
  }
  const int64_t staged_before = emulator::StagedBytes();
  const SharedFallbacks before = CountSharedFallbacks();
  const LoopbackJob job = MakeJob(1, "");
  const NoLargeFiles limit;
  EXPECT_EQ(Train(job, true, "unix"), sent);
  EXPECT_EQ(emulator::StagedBytes(), staged_before);
  EXPECT_EQ(CountSharedFallbacks().rows_refused - before.rows_refused,
            kWorkers);
}

// A worker writes where the shard reads, and its copies to the device are over
// when the next row may be written.
TEST_F(CudaSharedMemory, RowsAndVersionsAreUsedWhereTheyLie) {
  const Manifest manifest = TheManifest();
  const LoopbackJob shared = MakeJob(1, "", 1);
  const LoopbackJob sent = MakeJob(1, "", 1);
  const auto worker = Connect(shared, 0, true);
  const auto other = Connect(sent, 0, false);
  HostTensors parameters = MakeTensors(manifest, 7);
  ASSERT_TRUE(worker->SeedOrPull(MutableViews(&parameters)).ok());
  ASSERT_TRUE(other->SeedOrPull(MutableViews(&parameters)).ok());
  const auto row = worker->RowTensors();
  ASSERT_TRUE(row.ok()) << row.status();
  for (uint64_t round = 0; round < 4; ++round) {
    BeginRun(static_cast<int>(round));
    const HostTensors gradient = MakeTensors(manifest, round);
    std::vector<TensorView> views;
    for (size_t t = 0; t < gradient.size(); ++t) {
      std::copy(gradient[t].begin(), gradient[t].end(), (*row)[t].data);
      views.emplace_back(
          absl::MakeConstSpan((*row)[t].data, (*row)[t].num_elements));
    }
    ASSERT_TRUE(worker->Push(views).ok());
    const absl::StatusOr<RoundOutcome> outcome = worker->Commit({});
    ASSERT_TRUE(outcome.ok() && outcome->included);
    ASSERT_TRUE(
        other->PushPull(Views(gradient), {}, MutableViews(&parameters)).ok());
    const auto view = worker->PullView(outcome->version);
    ASSERT_TRUE(view.ok()) << view.status();
    for (size_t t = 0; t < parameters.size(); ++t) {
      const TensorView& tensor = (*view)->tensors()[t];
      const auto* const begin = static_cast<const float*>(tensor.data);
      EXPECT_EQ(std::vector<float>(begin, begin + tensor.num_elements),
                parameters[t]);
    }
    EXPECT_TRUE((*view)->valid());
  }
}

// The next worker of a rank has a row of its own, on the device, too.
TEST_F(CudaSharedMemory, ARankThatIsTakenOverGoesOn) {
  const Manifest manifest = TheManifest();
  const LoopbackJob job = MakeJob(kShards, "", 1);
  const auto former = Connect(job, 0, true);
  HostTensors parameters = MakeTensors(manifest, 7);
  ASSERT_TRUE(former->SeedOrPull(MutableViews(&parameters)).ok());
  ASSERT_TRUE(former->Push(Views(MakeTensors(manifest, 1))).ok());
  const auto next = Connect(job, 0, true);
  EXPECT_THAT(next->job().transports, Each(std::string("shm")));
  ASSERT_TRUE(next->SeedOrPull(MutableViews(&parameters)).ok());
  for (uint64_t round = 0; round < 3; ++round) {
    const HostTensors row = MakeTensors(manifest, 2 + round);
    const auto outcome =
        next->PushPull(Views(row), {}, MutableViews(&parameters));
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(outcome->included);
  }
}

}  // namespace
}  // namespace agg
