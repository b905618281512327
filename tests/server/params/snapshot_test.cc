#include "server/params/snapshot.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace agg {
namespace {

std::vector<SnapshotBuffers> Memories(int count) {
  return std::vector<SnapshotBuffers>(count);
}

TEST(SnapshotTest, CallsEachRevokeCallbackOnce) {
  SnapshotPool pool(Memories(1), DType::kF32);
  const std::shared_ptr<Snapshot> snapshot = pool.Acquire();
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
  const std::shared_ptr<Snapshot> snapshot = pool.Acquire();
  snapshot->Revoke();
  int calls = 0;
  EXPECT_EQ(snapshot->AddRevokeCallback([&] { ++calls; }), 0);
  EXPECT_EQ(calls, 1);
}

TEST(SnapshotTest, ACallbackMayLetTheSnapshotGo) {
  SnapshotPool pool(Memories(1), DType::kF32);
  std::shared_ptr<Snapshot> snapshot = pool.Acquire();
  snapshot->AddRevokeCallback([&] { snapshot = nullptr; });
  const std::shared_ptr<Snapshot> revoker = snapshot;
  revoker->Revoke();
  EXPECT_EQ(snapshot, nullptr);
}

TEST(SnapshotPoolTest, RecyclesMemory) {
  SnapshotPool pool(Memories(2), DType::kF32);
  EXPECT_TRUE(pool.Available());
  std::shared_ptr<Snapshot> first = pool.Acquire();
  const std::shared_ptr<Snapshot> second = pool.Acquire();
  EXPECT_NE(first->buffers(), second->buffers());
  EXPECT_FALSE(pool.Available());
  const SnapshotBuffers* memory = first->buffers();
  first = nullptr;
  EXPECT_TRUE(pool.Available());
  EXPECT_EQ(pool.Acquire()->buffers(), memory);
}

// A recycled memory's new snapshot has not been revoked.
TEST(SnapshotPoolTest, ANewSnapshotForgetsItsMemorysPast) {
  SnapshotPool pool(Memories(1), DType::kF32);
  pool.Acquire()->Revoke();
  int calls = 0;
  pool.Acquire()->AddRevokeCallback([&] { ++calls; });
  EXPECT_EQ(calls, 0);
}

TEST(SnapshotPoolTest, AcquireWaitsForTheLastReader) {
  SnapshotPool pool(Memories(1), DType::kF32);
  std::shared_ptr<Snapshot> held = pool.Acquire();
  std::shared_ptr<Snapshot> next;
  std::thread writer([&] { next = pool.Acquire(); });
  held = nullptr;
  writer.join();
  EXPECT_NE(next, nullptr);
}

}  // namespace
}  // namespace agg
