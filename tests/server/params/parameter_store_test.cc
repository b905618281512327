#include "server/params/parameter_store.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"

namespace agg {
namespace {

class ParameterStoreTest : public testing::Test {
 protected:
  ParameterStoreTest() {
    store_ = *ParameterStore::Create(backend_.get(), OptimizerOptions(), 64,
                                     DType::kBF16);
  }

  // Publishes the next version as a round does.
  std::shared_ptr<const Snapshot> Publish(uint64_t version) {
    int revoked = 0;
    std::shared_ptr<const Snapshot> snapshot = store_->NextSnapshot(&revoked);
    num_revoked_ += revoked;
    store_->Publish(version, snapshot);
    return snapshot;
  }

  std::unique_ptr<Backend> backend_ = *MakeBackend("cpu", {1});
  std::unique_ptr<ParameterStore> store_;
  int num_revoked_ = 0;
};

TEST_F(ParameterStoreTest, AllocatesWhatTheOptimizerKeeps) {
  EXPECT_NE(store_->master(), nullptr);
  EXPECT_EQ(store_->state0(), nullptr);
  OptimizerOptions adam;
  adam.kind = OptimizerKind::kAdam;
  const auto with_state =
      *ParameterStore::Create(backend_.get(), adam, 64, DType::kF32);
  EXPECT_NE(with_state->state0(), nullptr);
  EXPECT_NE(with_state->state1(), nullptr);
  int revoked;
  const auto snapshot = with_state->NextSnapshot(&revoked);
  EXPECT_NE(snapshot->data(DType::kF32), nullptr);
  EXPECT_EQ(snapshot->data(DType::kBF16), nullptr);
}

TEST_F(ParameterStoreTest, ASnapshotHasTheNarrowedCopyItKeeps) {
  const auto snapshot = Publish(0);
  EXPECT_NE(snapshot->data(DType::kF32), nullptr);
  EXPECT_NE(snapshot->data(DType::kBF16), nullptr);
  EXPECT_EQ(snapshot->data(DType::kF16), nullptr);
}

TEST_F(ParameterStoreTest, KeepsTheCurrentVersionAndTheOneBefore) {
  Publish(0);
  EXPECT_NE(store_->Find(0), nullptr);
  EXPECT_EQ(store_->Find(1), nullptr);
  Publish(1);
  Publish(2);
  EXPECT_EQ(store_->Find(0), nullptr);
  EXPECT_NE(store_->Find(1), nullptr);
  EXPECT_NE(store_->Find(2), nullptr);
}

TEST_F(ParameterStoreTest, RecyclesWithoutReadersForEver) {
  for (uint64_t version = 0; version < 20; ++version) Publish(version);
  EXPECT_EQ(num_revoked_, 0);
}

TEST_F(ParameterStoreTest, ASkippedRoundPublishesTheSameBytes) {
  auto snapshot = Publish(0);
  store_->Publish(1, store_->Find(0));
  store_->Publish(2, store_->Find(1));
  EXPECT_EQ(store_->Find(2), snapshot);
  EXPECT_EQ(store_->Find(1), snapshot);
  EXPECT_EQ(store_->Find(0), nullptr);
  snapshot = nullptr;
  for (uint64_t version = 3; version < 9; ++version) Publish(version);
  EXPECT_EQ(num_revoked_, 0);
}

TEST_F(ParameterStoreTest, RevokesTheOldestReaderOnlyWhenMemoryIsNeeded) {
  std::shared_ptr<const Snapshot> held = Publish(0);
  int calls = 0;
  held->AddRevokeCallback([&] {
    ++calls;
    held = nullptr;  // as the transport does, a little later
  });
  Publish(1);
  Publish(2);
  EXPECT_EQ(calls, 0);
  Publish(3);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(num_revoked_, 1);
  Publish(4);
  EXPECT_EQ(num_revoked_, 1);
}

TEST_F(ParameterStoreTest, NeverRevokesTheCurrentVersion) {
  Publish(0);
  Publish(1);
  std::shared_ptr<const Snapshot> previous = store_->Find(0);
  const std::shared_ptr<const Snapshot> current = store_->Find(1);
  bool current_revoked = false;
  current->AddRevokeCallback([&] { current_revoked = true; });
  previous->AddRevokeCallback([&] { previous = nullptr; });
  // One memory is free; the second is the previous version's.
  int revoked = 0;
  const auto next = store_->NextSnapshot(&revoked);
  EXPECT_EQ(revoked, 0);
  const auto another = store_->NextSnapshot(&revoked);
  EXPECT_EQ(revoked, 1);
  EXPECT_EQ(previous, nullptr);
  EXPECT_FALSE(current_revoked);
  EXPECT_NE(store_->Find(1), nullptr);
}

TEST_F(ParameterStoreTest, WaitsForARevokedReaderOfAnotherThread) {
  std::shared_ptr<const Snapshot> held = Publish(0);
  Publish(1);
  Publish(2);
  std::thread reader;
  held->AddRevokeCallback(
      [&] { reader = std::thread([reference = std::move(held)] {}); });
  Publish(3);
  reader.join();
  EXPECT_EQ(num_revoked_, 1);
}

// A reader whose peer does not take its bytes: each version that it holds up
// costs the patience once, and then there is one memory more.
TEST_F(ParameterStoreTest, AReaderThatDoesNotLetGoCostsTheSpareMemory) {
  store_ = *ParameterStore::Create(backend_.get(), OptimizerOptions(), 64,
                                   DType::kBF16, absl::ZeroDuration());
  std::shared_ptr<const Snapshot> held = Publish(0);
  const char* bytes = held->data(DType::kF32);
  for (uint64_t version = 1; version < 20; ++version) {
    const auto snapshot = Publish(version);
    EXPECT_NE(snapshot->data(DType::kF32), bytes);
    EXPECT_NE(snapshot->data(DType::kBF16), nullptr);
  }
  EXPECT_EQ(num_revoked_, 1);
  // There is none but one: the next one that does not let go is waited for.
  std::shared_ptr<const Snapshot> second = store_->Find(19);
  std::thread reader;
  second->AddRevokeCallback(
      [&] { reader = std::thread([reference = std::move(second)] {}); });
  for (uint64_t version = 20; version < 23; ++version) Publish(version);
  reader.join();
  EXPECT_EQ(num_revoked_, 2);
}

TEST_F(ParameterStoreTest, AtItsEndAllReadersAreRevoked) {
  int num_calls = 0;
  std::vector<std::shared_ptr<const Snapshot>> held;
  for (uint64_t version = 0; version < 3; ++version) {
    held.push_back(Publish(version));
    held.back()->AddRevokeCallback([&] { ++num_calls; });
  }
  store_->RevokeAll();
  EXPECT_EQ(num_calls, 3);
  EXPECT_EQ(store_->Find(2), nullptr);
}

TEST_F(ParameterStoreTest, SnapshotsOutliveTheStore) {
  const auto snapshot = Publish(0);
  store_ = nullptr;
  EXPECT_NE(snapshot->data(DType::kF32), nullptr);
}

}  // namespace
}  // namespace agg
