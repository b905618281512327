#include "server/params/snapshot.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "server/params/shared_buffer.h"
#include "server/shard/guarded_backend.h"
#include "tests/server/base/no_large_files.h"

namespace agg {
namespace {

constexpr absl::Duration kForever = absl::InfiniteDuration();

std::vector<SnapshotBuffers> Memories(int count) {
  return std::vector<SnapshotBuffers>(count);
}

TEST(SnapshotTest, CallsEachRevokeCallbackOnce) {
  SnapshotPool pool(Memories(1), DType::kF32);
  const std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  int first = 0;
  int second = 0;
  snapshot->AddRevokeCallback([&] { ++first; });
  const int64_t id = snapshot->AddRevokeCallback([&] { ++second; });
  snapshot->RemoveRevokeCallback(id);
  snapshot->Revoke();
  snapshot->Revoke();
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 0);
}

TEST(SnapshotTest, ALateCallbackRunsAtOnce) {
  SnapshotPool pool(Memories(1), DType::kF32);
  const std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  snapshot->Revoke();
  int calls = 0;
  EXPECT_EQ(snapshot->AddRevokeCallback([&] { ++calls; }), 0);
  EXPECT_EQ(calls, 1);
}

TEST(SnapshotTest, ACallbackMayLetTheSnapshotGo) {
  SnapshotPool pool(Memories(1), DType::kF32);
  std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  snapshot->AddRevokeCallback([&] { snapshot = nullptr; });
  const std::shared_ptr<Snapshot> revoker = snapshot;
  revoker->Revoke();
  EXPECT_EQ(snapshot, nullptr);
}

TEST(SnapshotTest, Float32MayBeReadWhenItsBytesAreThere) {
  SnapshotPool pool(Memories(1), DType::kBF16);
  const std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  std::vector<absl::Status> heard;
  const auto note = [&](const absl::Status& status) {
    heard.push_back(status);
  };
  snapshot->WhenReadable(DType::kF32, note);
  EXPECT_EQ(heard.size(), 1u);  // nothing is deferred
  snapshot->Defer();
  snapshot->WhenReadable(DType::kBF16, note);
  EXPECT_EQ(heard.size(), 2u);
  EXPECT_TRUE(snapshot->readable(DType::kBF16));
  snapshot->WhenReadable(DType::kF32, note);
  EXPECT_EQ(heard.size(), 2u);
  EXPECT_FALSE(snapshot->readable(DType::kF32));
  snapshot->Finish(absl::OkStatus());
  EXPECT_EQ(heard.size(), 3u);
  EXPECT_TRUE(snapshot->readable(DType::kF32));
  snapshot->WhenReadable(DType::kF32, note);
  EXPECT_EQ(heard.size(), 4u);
  for (const absl::Status& status : heard) EXPECT_EQ(status, absl::OkStatus());
}

TEST(SnapshotTest, Float32ThatNeverComesIsAnErrorOfItsReadersAlone) {
  SnapshotPool pool(Memories(1), DType::kBF16);
  const std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  const absl::Status lost = absl::UnavailableError("lost");
  absl::Status early, late, narrowed = lost;
  snapshot->Defer();
  snapshot->WhenReadable(DType::kF32,
                         [&](const absl::Status& status) { early = status; });
  snapshot->Finish(lost);
  snapshot->WhenReadable(DType::kF32,
                         [&](const absl::Status& status) { late = status; });
  snapshot->WhenReadable(
      DType::kBF16, [&](const absl::Status& status) { narrowed = status; });
  EXPECT_EQ(early, lost);
  EXPECT_EQ(late, lost);
  EXPECT_EQ(narrowed, absl::OkStatus());
  EXPECT_FALSE(snapshot->readable(DType::kF32));
}

TEST(SnapshotTest, AfterAFailureTheNextReaderAsksAgain) {
  SnapshotPool pool(Memories(1), DType::kBF16);
  const std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  const absl::Status failure = absl::UnavailableError("no copy");
  std::vector<absl::Status> heard;
  const auto note = [&](const absl::Status& status) {
    heard.push_back(status);
  };
  int asked = 0;
  snapshot->Defer();
  snapshot->WhenReadable(DType::kF32, note);
  snapshot->FailUntilAsked(failure, [&asked] { ++asked; });
  EXPECT_EQ(heard, std::vector<absl::Status>({failure}));
  EXPECT_FALSE(snapshot->readable(DType::kF32));
  EXPECT_EQ(asked, 0);
  snapshot->WhenReadable(DType::kF32, note);
  snapshot->WhenReadable(DType::kF32, note);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(heard.size(), 1u);
  snapshot->Finish(absl::OkStatus());
  EXPECT_EQ(heard.size(), 3u);
  EXPECT_EQ(heard.back(), absl::OkStatus());
  EXPECT_TRUE(snapshot->readable(DType::kF32));
}

TEST(SnapshotTest, WhatHasFailedIsLostWithTheNextVersion) {
  SnapshotPool pool(Memories(1), DType::kBF16);
  const std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  snapshot->Defer();
  snapshot->FailUntilAsked(absl::UnavailableError("no copy"),
                           [] { ADD_FAILURE() << "asked"; });
  EXPECT_TRUE(snapshot->Lose());
  absl::Status status;
  snapshot->WhenReadable(
      DType::kF32, [&status](const absl::Status& said) { status = said; });
  snapshot->FinishLost(absl::OutOfRangeError("gone"));
  EXPECT_EQ(status, absl::OutOfRangeError("gone"));
}

TEST(SnapshotTest, Float32IsAskedForByItsFirstReader) {
  SnapshotPool pool(Memories(1), DType::kBF16);
  const std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  int asked = 0, heard = 0;
  snapshot->DeferUntilAsked([&asked] { ++asked; });
  const auto note = [&heard](const absl::Status& status) {
    EXPECT_EQ(status, absl::OkStatus());
    ++heard;
  };
  snapshot->WhenReadable(DType::kBF16, note);
  EXPECT_EQ(asked, 0);
  EXPECT_FALSE(snapshot->asked());
  snapshot->WhenReadable(DType::kF32, note);
  snapshot->WhenReadable(DType::kF32, note);
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(snapshot->asked());
  EXPECT_EQ(heard, 1);
  EXPECT_FALSE(snapshot->Lose());  // it is on its way
  snapshot->FinishLost(absl::OutOfRangeError("gone"));
  EXPECT_EQ(heard, 1);
  snapshot->Finish(absl::OkStatus());
  EXPECT_EQ(heard, 3);
}

TEST(SnapshotTest, Float32ThatIsLostKeepsReadersUntilTheNextVersion) {
  SnapshotPool pool(Memories(1), DType::kBF16);
  const std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  snapshot->DeferUntilAsked([] { ADD_FAILURE() << "asked"; });
  EXPECT_TRUE(snapshot->Lose());
  absl::Status status;
  snapshot->WhenReadable(
      DType::kF32, [&status](const absl::Status& said) { status = said; });
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_FALSE(snapshot->readable(DType::kF32));
  snapshot->FinishLost(absl::OutOfRangeError("gone"));
  EXPECT_EQ(status, absl::OutOfRangeError("gone"));
}

// Counts how many of its kind are alive.
class CountedBuffer : public Buffer {
 public:
  explicit CountedBuffer(int* alive) : alive_(alive) { ++*alive_; }
  ~CountedBuffer() override { --*alive_; }
  char* host() const override { return nullptr; }
  int64_t num_bytes() const override { return 0; }

 private:
  int* const alive_;
};

TEST(SnapshotPoolTest, FreesWhatNobodyReadsWithThePoolAndTheRestLater) {
  int alive = 0;
  std::vector<SnapshotBuffers> memories(3);
  for (SnapshotBuffers& memory : memories) {
    memory.f32 = std::make_unique<CountedBuffer>(&alive);
  }
  auto pool = std::make_unique<SnapshotPool>(std::move(memories), DType::kF32);
  std::shared_ptr<Snapshot> held = pool->AcquireWithin(kForever);
  pool->AcquireWithin(kForever);
  EXPECT_EQ(alive, 3);
  pool = nullptr;
  EXPECT_EQ(alive, 1);
  held = nullptr;
  EXPECT_EQ(alive, 0);
}

TEST(SnapshotPoolTest, WaitsNoLongerThanItIsAllowed) {
  SnapshotPool pool(Memories(1), DType::kF32);
  std::shared_ptr<Snapshot> first = pool.AcquireWithin(absl::ZeroDuration());
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(pool.AcquireWithin(absl::ZeroDuration()), nullptr);
  pool.Add(SnapshotBuffers());
  EXPECT_NE(pool.AcquireWithin(absl::ZeroDuration()), nullptr);
  std::thread reader(
      [reference = std::move(first)]() mutable { reference = nullptr; });
  EXPECT_NE(pool.AcquireWithin(absl::InfiniteDuration()), nullptr);
  reader.join();
}

TEST(SnapshotPoolTest, RecyclesMemory) {
  SnapshotPool pool(Memories(2), DType::kF32);
  EXPECT_TRUE(pool.Available());
  std::shared_ptr<Snapshot> first = pool.AcquireWithin(kForever);
  const std::shared_ptr<Snapshot> second = pool.AcquireWithin(kForever);
  EXPECT_NE(first->buffers(), second->buffers());
  EXPECT_FALSE(pool.Available());
  const SnapshotBuffers* memory = first->buffers();
  first = nullptr;
  EXPECT_TRUE(pool.Available());
  EXPECT_EQ(pool.AcquireWithin(kForever)->buffers(), memory);
}

// A recycled memory's new snapshot has not been revoked.
TEST(SnapshotPoolTest, ANewSnapshotForgetsItsMemorysPast) {
  SnapshotPool pool(Memories(1), DType::kF32);
  pool.AcquireWithin(kForever)->Revoke();
  int calls = 0;
  pool.AcquireWithin(kForever)->AddRevokeCallback([&] { ++calls; });
  EXPECT_EQ(calls, 0);
}

// Whose bytes are under way counts as a reader, until the memory is wanted.
TEST(SnapshotPoolTest, LentBytesComeBackOrAreTakenOver) {
  SnapshotPool pool(Memories(1), DType::kF32);
  std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
  const SnapshotBuffers* const memory = snapshot->buffers();
  std::shared_ptr<const void> lent = LendBytes(snapshot);
  EXPECT_EQ(pool.InUse().size(), 1u);
  snapshot = nullptr;
  EXPECT_FALSE(pool.Available());
  EXPECT_TRUE(pool.InUse().empty());
  EXPECT_EQ(pool.AcquireWithin(absl::ZeroDuration()), nullptr);
  lent = nullptr;
  EXPECT_TRUE(pool.Available());

  snapshot = pool.AcquireWithin(kForever);
  std::vector<std::string> calls;
  SnapshotReaders::Reader reader;
  reader.revoke = [&] { calls.push_back("revoke"); };
  reader.overtake = [&](bool freed) {
    EXPECT_FALSE(freed);
    calls.push_back("overtake");
  };
  snapshot->readers()->Add(reader);
  lent = LendBytes(snapshot);
  EXPECT_EQ(pool.TakeOverWithin(absl::ZeroDuration()), nullptr);  // it is held
  snapshot->Revoke();
  snapshot = nullptr;
  snapshot = pool.TakeOverWithin(absl::ZeroDuration());
  ASSERT_NE(snapshot, nullptr);
  EXPECT_EQ(snapshot->buffers(), memory);
  EXPECT_FALSE(snapshot->revoked());
  EXPECT_EQ(calls, std::vector<std::string>({"revoke", "overtake"}));
  // What comes back too late is another version's now.
  lent = nullptr;
  EXPECT_FALSE(pool.Available());
  snapshot = nullptr;
  EXPECT_TRUE(pool.Available());
}

TEST(SnapshotPoolTest, TakesOverTheOldestOnlyIfNoneIsFree) {
  SnapshotPool pool(Memories(3), DType::kF32);
  std::vector<std::shared_ptr<const void>> lent;
  std::vector<const SnapshotBuffers*> memories;
  for (int i = 0; i < 2; ++i) {
    const std::shared_ptr<Snapshot> snapshot = pool.AcquireWithin(kForever);
    memories.push_back(snapshot->buffers());
    lent.push_back(LendBytes(snapshot));
  }
  const auto free = pool.TakeOverWithin(kForever);
  EXPECT_NE(free->buffers(), memories[0]);
  EXPECT_NE(free->buffers(), memories[1]);
  EXPECT_EQ(pool.TakeOverWithin(kForever)->buffers(), memories[0]);
}

TEST(SnapshotPoolTest, WhatIsLentOutlivesThePoolAndIsSaidToBeOfNoUse) {
  int alive = 0;
  std::vector<SnapshotBuffers> memories(1);
  memories[0].f32 = std::make_unique<CountedBuffer>(&alive);
  auto pool = std::make_unique<SnapshotPool>(std::move(memories), DType::kF32);
  std::shared_ptr<Snapshot> snapshot = pool->AcquireWithin(kForever);
  bool freed = false;
  SnapshotReaders::Reader reader;
  reader.revoke = [] {};
  reader.overtake = [&](bool value) { freed = value; };
  snapshot->readers()->Add(reader);
  std::shared_ptr<const void> lent = LendBytes(snapshot);
  snapshot = nullptr;
  pool = nullptr;
  EXPECT_TRUE(freed);
  EXPECT_EQ(alive, 1);
  lent = nullptr;
  EXPECT_EQ(alive, 0);
}

TEST(SnapshotReadersTest, WhoHasGoneHearsNothing) {
  SnapshotReaders readers;
  int calls = 0;
  const auto revoke = [&] { ++calls; };
  const auto overtake = [&](bool) { ++calls; };
  const int64_t first = readers.Add({revoke, overtake});
  const int64_t second = readers.Add({revoke, overtake});
  readers.Remove(first);
  readers.Revoke();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(readers.empty());
  readers.Remove(second);
  readers.Overtake(/*freed=*/false);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(readers.empty());
}

TEST(SnapshotPoolTest, WaitsForTheLastReader) {
  SnapshotPool pool(Memories(1), DType::kF32);
  for (const bool lent : {false, true}) {
    std::shared_ptr<Snapshot> held = pool.AcquireWithin(kForever);
    std::shared_ptr<const void> bytes = lent ? LendBytes(held) : nullptr;
    std::shared_ptr<Snapshot> next;
    std::thread writer([&] { next = pool.AcquireWithin(kForever); });
    held = nullptr;
    bytes = nullptr;
    writer.join();
    EXPECT_NE(next, nullptr);
  }
}

// Memory that cannot be shared is private, and counted by why.

constexpr int64_t kBytes = NoLargeFiles::kMaxBytes + 1;

class SharedBufferTest : public testing::Test {
 protected:
  SharedBufferTest() : backend_(*MakeBackend("cpu", {1})) {}

  std::unique_ptr<Buffer> Allocate(BufferUse use, bool shared) {
    auto buffer = AllocateHost(backend_.get(), use, kBytes, shared);
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    return buffer.ok() ? *std::move(buffer) : nullptr;
  }

  std::unique_ptr<Backend> backend_;
};

TEST_F(SharedBufferTest, IsSharedIfItMayBe) {
  const SharedFallbacks before = CountSharedFallbacks();
  const auto shared = Allocate(BufferUse::kRow, true);
  EXPECT_NE(SharedBuffer::RegionOf(shared.get()), nullptr);
  const auto own = Allocate(BufferUse::kRow, false);
  EXPECT_EQ(SharedBuffer::RegionOf(own.get()), nullptr);
  EXPECT_EQ(shared->device(), nullptr);  // the CPU has none
  EXPECT_EQ(CountSharedFallbacks().rows_refused, before.rows_refused);
}

// Looks at what it is to adopt.
class LookingBackend : public GuardedBackend {
 public:
  explicit LookingBackend(Backend* backend) : GuardedBackend(backend) {}

  absl::StatusOr<std::unique_ptr<Buffer>> Adopt(
      BufferUse use, char* host, int64_t num_bytes,
      absl::Status* registered) override {
    num_touched += NumTouched(host, num_bytes);
    return GuardedBackend::Adopt(use, host, num_bytes, registered);
  }

  static int64_t NumTouched(char* memory, int64_t num_bytes) {
    std::vector<unsigned char> pages((num_bytes + 4095) / 4096);
    EXPECT_EQ(mincore(memory, static_cast<size_t>(num_bytes), pages.data()), 0);
    return std::count_if(pages.begin(), pages.end(),
                         [](unsigned char page) { return (page & 1) != 0; });
  }

  int64_t num_touched = 0;
};

// A device's backend says on which node pages shall be; then all are taken.
TEST_F(SharedBufferTest, NobodyTouchesItBeforeTheBackendHasIt) {
  LookingBackend looking(backend_.get());
  for (const BufferUse use : {BufferUse::kRow, BufferUse::kSnapshot}) {
    const auto buffer = *AllocateHost(&looking, use, kBytes, true);
    EXPECT_EQ(looking.num_touched, 0);
    const int64_t num_touched =
        LookingBackend::NumTouched(buffer->host(), kBytes);
    // Linux before 5.14 does not know how.
    if (madvise(buffer->host(), 4096, MADV_POPULATE_WRITE) == 0) {
      EXPECT_EQ(num_touched, (kBytes + 4095) / 4096);
    }
  }
}

TEST_F(SharedBufferTest, WhatTheSystemRefusesToShareIsPrivateAndCounted) {
  const SharedFallbacks before = CountSharedFallbacks();
  const NoLargeFiles limit;
  const auto row = Allocate(BufferUse::kRow, true);
  const auto version = Allocate(BufferUse::kSnapshot, true);
  const auto second = Allocate(BufferUse::kSnapshot, true);
  for (const Buffer* buffer : {row.get(), version.get(), second.get()}) {
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(SharedBuffer::RegionOf(buffer), nullptr);
    buffer->host()[kBytes - 1] = 'x';  // all of it is there
  }
  const SharedFallbacks after = CountSharedFallbacks();
  EXPECT_EQ(after.rows_refused - before.rows_refused, 1);
  EXPECT_EQ(after.versions_refused - before.versions_refused, 2);
  EXPECT_EQ(after.rows_no_memory, before.rows_no_memory);
  EXPECT_EQ(after.versions_no_memory, before.versions_no_memory);
}

}  // namespace
}  // namespace agg
