#include "server/params/parameter_store.h"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend_factory.h"
#include "server/base/clock.h"
#include "server/shard/guarded_backend.h"

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
    std::shared_ptr<const Snapshot> snapshot = *store_->NextSnapshot(&revoked);
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
  const auto snapshot = *with_state->NextSnapshot(&revoked);
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
  const auto next = *store_->NextSnapshot(&revoked);
  EXPECT_EQ(revoked, 0);
  const auto another = *store_->NextSnapshot(&revoked);
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

// A reader as the transport's: it lets go of the snapshot when it is told to,
// and the bytes that it has lent never come back.
class FrozenReader {
 public:
  explicit FrozenReader(const std::shared_ptr<const Snapshot>& snapshot)
      : snapshot_(snapshot), lent_(LendBytes(snapshot)) {
    SnapshotReaders::Reader reader;
    reader.revoke = [this] { snapshot_ = nullptr; };
    reader.overtake = [this](bool) { overtaken_ = true; };
    snapshot->readers()->Add(std::move(reader));
  }
  bool overtaken() const { return overtaken_; }

 private:
  std::shared_ptr<const Snapshot> snapshot_;
  const std::shared_ptr<const void> lent_;
  bool overtaken_ = false;
};

class FrozenReadersTest : public ParameterStoreTest {
 protected:
  // Waits that nobody ends would never end.
  void Begin(absl::Duration patience) {
    store_ = *ParameterStore::Create(backend_.get(), OptimizerOptions(), 64,
                                     DType::kBF16, patience, /*shared=*/false,
                                     &clock_);
  }
  void Freeze(uint64_t version) {
    readers_.push_back(std::make_unique<FrozenReader>(store_->Find(version)));
  }

  FakeClock clock_;
  std::vector<std::unique_ptr<FrozenReader>> readers_;
};

TEST_F(FrozenReadersTest, OneForEachVersionDelaysNothingAndCostsNoMemory) {
  Begin(absl::ZeroDuration());
  std::set<const char*> memories;
  for (uint64_t version = 0; version < 50; ++version) {
    memories.insert(Publish(version)->data(DType::kF32));
    Freeze(version);
    // Of the versions that can be found nothing is taken.
    EXPECT_FALSE(readers_.back()->overtaken());
    if (version > 0) {
      EXPECT_FALSE(readers_[version - 1]->overtaken());
    }
  }
  EXPECT_EQ(memories.size(), static_cast<size_t>(kNumSnapshots));
  EXPECT_EQ(num_revoked_, 47);
  for (size_t i = 0; i < 47; ++i) EXPECT_TRUE(readers_[i]->overtaken()) << i;
}

TEST_F(FrozenReadersTest, ManyOfOneVersionAreOvertakenTogether) {
  Begin(absl::ZeroDuration());
  Publish(0);
  for (int i = 0; i < 1000; ++i) Freeze(0);
  for (uint64_t version = 1; version < 9; ++version) Publish(version);
  EXPECT_EQ(num_revoked_, 1);
  for (const auto& reader : readers_) EXPECT_TRUE(reader->overtaken());
}

// The wait itself is a real one, and the clock says for how long there is no
// other: a hundred waits of 5 s would take longer than any test may.
TEST_F(FrozenReadersTest, OnlyTheFirstOfAWhileIsWaitedFor) {
  Begin(absl::Seconds(5));
  for (uint64_t version = 0; version < 100; ++version) {
    Publish(version);
    Freeze(version);
  }
  EXPECT_EQ(num_revoked_, 97);
}

// As when an epoch ends in the midst of a pipelined round: nobody publishes
// what its readers have begun to get.
TEST_F(FrozenReadersTest, OfAVersionThatNobodyPublishesToo) {
  Begin(absl::ZeroDuration());
  Publish(0);
  Publish(1);
  int revoked = 0;
  {
    const std::shared_ptr<const Snapshot> dropped =
        *store_->NextSnapshot(&revoked);
    readers_.push_back(std::make_unique<FrozenReader>(dropped));
  }
  EXPECT_EQ(revoked, 0);
  for (uint64_t version = 2; version < 9; ++version) Publish(version);
  EXPECT_EQ(num_revoked_, 1);
  EXPECT_TRUE(readers_[0]->overtaken());
}

TEST_F(FrozenReadersTest, OfAllVersionsWhenTheStoreBeginsAnew) {
  Begin(absl::ZeroDuration());
  for (uint64_t version = 0; version < 3; ++version) {
    Publish(version);
    Freeze(version);
  }
  store_->RevokeAll();
  for (uint64_t version = 1; version < 9; ++version) {
    Publish(version);
    // The version before is kept: there are others' bytes to take.
    if (version > 1) {
      EXPECT_NE(store_->Find(version - 1), nullptr);
    }
  }
  for (const auto& reader : readers_) EXPECT_TRUE(reader->overtaken());
}

// A backend without memory for more than the plan has.
class FullBackend : public GuardedBackend {
 public:
  explicit FullBackend(Backend* backend) : GuardedBackend(backend) {}
  absl::StatusOr<std::unique_ptr<Buffer>> Allocate(BufferUse use,
                                                   int64_t num_bytes) override {
    if (full) {
      ++num_refused;
      if (on_refusal != nullptr) on_refusal();
      return absl::ResourceExhaustedError("the host is full");
    }
    return GuardedBackend::Allocate(use, num_bytes);
  }

  bool full = false;
  int num_refused = 0;
  std::function<void()> on_refusal;
};

// Who has a version here does not listen, as a copy from a device that hangs.
class OwnHoldersTest : public ParameterStoreTest {
 protected:
  OwnHoldersTest() {
    store_ = *ParameterStore::Create(
        &full_, OptimizerOptions(), 64, DType::kBF16, absl::ZeroDuration(),
        /*shared=*/false, &clock_, /*own_patience=*/absl::ZeroDuration());
    for (uint64_t version = 5; version < 8; ++version) {
      held_.push_back(Publish(version));
    }
    full_.full = true;
  }

  FakeClock clock_;
  FullBackend full_{backend_.get()};
  std::vector<std::shared_ptr<const Snapshot>> held_;
};

TEST_F(OwnHoldersTest, EndWithAnErrorThatNamesThemAndWhatWasRefused) {
  int revoked = 0;
  const auto next = store_->NextSnapshot(&revoked);
  ASSERT_EQ(next.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string text(next.status().message());
  EXPECT_THAT(text, testing::HasSubstr(
                        "holds on to version 6 (which can be pulled), "
                        "version 7 (which can be pulled), version 5 (told to "
                        "let go)"));
  EXPECT_THAT(text, testing::HasSubstr("384 bytes were asked for"));
  EXPECT_THAT(text, testing::HasSubstr("the host is full"));
  EXPECT_THAT(text, testing::HasSubstr("free memory on this host"));
  EXPECT_EQ(revoked, 1);
  EXPECT_EQ(full_.num_refused, kOwnTries);
  // Nothing of what can be pulled is lost.
  EXPECT_EQ(store_->Find(7), held_[2]);
}

TEST_F(OwnHoldersTest, AreNamedIfNobodyPublishedWhatTheyHaveToo) {
  full_.full = false;
  held_.erase(held_.begin());
  int revoked = 0;
  held_.push_back(*store_->NextSnapshot(&revoked));
  full_.full = true;
  const auto next = store_->NextSnapshot(&revoked);
  ASSERT_EQ(next.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(next.status().message()),
              testing::HasSubstr("1 that no round published"));
}

TEST_F(OwnHoldersTest, WhoLetsGoMeanwhileEndsTheWait) {
  full_.on_refusal = [&] {
    if (full_.num_refused == 2) held_.erase(held_.begin());
  };
  int revoked = 0;
  EXPECT_TRUE(store_->NextSnapshot(&revoked).ok());
  EXPECT_EQ(full_.num_refused, 2);
}

TEST_F(OwnHoldersTest, AreOfNoWeightOnceTheyLetGo) {
  int revoked = 0;
  ASSERT_FALSE(store_->NextSnapshot(&revoked).ok());
  held_.clear();
  for (uint64_t version = 8; version < 20; ++version) Publish(version);
  EXPECT_EQ(full_.num_refused, kOwnTries);
}

TEST_F(OwnHoldersTest, CostMemoryBesideThePlanWhereThereIsSome) {
  full_.full = false;
  int revoked = 0;
  EXPECT_TRUE(store_->NextSnapshot(&revoked).ok());
  EXPECT_EQ(revoked, 1);
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

// Else a frozen reader of it would keep its memory beside a later store's.
TEST_F(ParameterStoreTest, AtItsEndThoseOfAVersionThatNobodyPublishesToo) {
  Publish(0);
  int revoked = 0;
  std::shared_ptr<const Snapshot> held = *store_->NextSnapshot(&revoked);
  int num_calls = 0;
  held->AddRevokeCallback([&] {
    ++num_calls;
    held = nullptr;
  });
  store_->RevokeAll();
  EXPECT_EQ(num_calls, 1);
}

TEST_F(ParameterStoreTest, SnapshotsOutliveTheStore) {
  const auto snapshot = Publish(0);
  store_ = nullptr;
  EXPECT_NE(snapshot->data(DType::kF32), nullptr);
}

}  // namespace
}  // namespace agg
