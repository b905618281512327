#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "server/base/mutex.h"
#include "server/tls/tls_diagnosis.h"

namespace agg {
namespace {

constexpr absl::Duration kLongest = absl::Minutes(1);

// A name server that answers nobody until it is let go.
struct Gate {
  Mutex mutex;
  CondVar changed;
  bool open ABSL_GUARDED_BY(mutex) = false;
  int asked ABSL_GUARDED_BY(mutex) = 0;

  std::vector<SocketAddress> Answer() {
    MutexLock lock(&mutex);
    ++asked;
    changed.NotifyAll();
    while (!open) changed.Wait(&mutex);
    return std::vector<SocketAddress>(1);
  }
  void AwaitAsked(int number) {
    MutexLock lock(&mutex);
    while (asked < number) changed.Wait(&mutex);
  }
  void Open() {
    MutexLock lock(&mutex);
    open = true;
    changed.NotifyAll();
  }
};

TEST(ResolveHostTest, TheSystemKnowsLoopback) {
  const auto found = ResolveHost({"127.0.0.1", 5}, absl::Now() + kLongest);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].bytes.ss_family, AF_INET);
  EXPECT_TRUE(ResolveHost({"no such.name", 5}, absl::Now() + kLongest).empty());
}

TEST(ResolveHostTest, ALookupThatHangsIsNotWaitedForAndTheyAreFew) {
  // Outlives the threads, which end by themselves.
  auto gate = std::make_shared<Gate>();
  const Resolver hangs = [gate](const Address&) { return gate->Answer(); };
  for (int i = 0; i < kMaxLookups; ++i) {
    EXPECT_TRUE(ResolveHost({"a", 1}, absl::Now(), hangs).empty());
  }
  gate->AwaitAsked(kMaxLookups);
  // One more is not begun, however much time there is.
  EXPECT_TRUE(ResolveHost({"a", 1}, absl::InfiniteFuture(), hangs).empty());
  gate->Open();
  // They are over at some time, and then there is room again.
  while (ResolveHost({"a", 1}, absl::Now() + kLongest, hangs).empty()) {
  }
}

}  // namespace
}  // namespace agg
