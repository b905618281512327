#include <atomic>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "gtest/gtest.h"
#include "server/base/mutex.h"
#include "server/shard/shard_engine.h"

namespace agg {
namespace {

TEST(ComputeTurnTest, OneHasIt) {
  ComputeTurn turn;
  int sum = 0;  // a race without the turn
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        const TurnLock lock(&turn);
        ++sum;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 4000);
}

// Counts its calls, under the turn as a filler has to.
class Filler {
 public:
  explicit Filler(ComputeTurn* turn) : turn_(turn) {
    turn->StartFiller([this] { Fill(); });
  }
  void WaitForCalls(int num_calls) {
    MutexLock lock(&mutex_);
    while (num_calls_ < num_calls) changed_.Wait(&mutex_);
  }

  std::atomic<bool> forbidden{false};
  std::atomic<int> num_more{0};  // calls that a call asks for

 private:
  void Fill() {
    EXPECT_FALSE(forbidden);
    const TurnLock lock(turn_);
    if (num_more > 0) {
      --num_more;
      turn_->WakeFiller();
    }
    MutexLock count_lock(&mutex_);
    ++num_calls_;
    changed_.NotifyAll();
  }

  ComputeTurn* const turn_;
  Mutex mutex_;
  CondVar changed_;
  int num_calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(ComputeTurnTest, TheFillerWaitsForAGap) {
  ComputeTurn turn;
  Filler filler(&turn);
  {
    const TurnLock lock(&turn);
    filler.forbidden = true;
    turn.WakeFiller();
    filler.forbidden = false;
  }
  filler.WaitForCalls(1);
  turn.StopFiller();
}

TEST(ComputeTurnTest, TheFillerMayAskForMore) {
  ComputeTurn turn;
  Filler filler(&turn);
  filler.num_more = 2;
  turn.WakeFiller();
  filler.WaitForCalls(3);
  turn.StopFiller();
}

TEST(ComputeTurnTest, StopsWithWorkLeft) {
  ComputeTurn turn;
  Filler filler(&turn);
  filler.num_more = 1000000;
  turn.WakeFiller();
  filler.WaitForCalls(1);
  turn.StopFiller();
  turn.StopFiller();  // idempotent
  turn.WakeFiller();
  const TurnLock lock(&turn);
}

TEST(ComputeTurnTest, WorksWithoutAFiller) {
  ComputeTurn turn;
  turn.WakeFiller();
  const TurnLock lock(&turn);
}

}  // namespace
}  // namespace agg
