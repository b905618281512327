#include <atomic>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "worker_client/row_pusher.h"

namespace agg {
namespace {

TEST(PushTurnTest, WhoWaitsAndIsCancelledEndsWhileTheTurnIsTaken) {
  PushTurn turn;
  CancelSource first, second;
  // Branches: clang's analysis does not see through a macro's.
  if (!turn.Take(&first)) FAIL() << "the turn is free";
  std::thread waiter([&] { EXPECT_FALSE(turn.Take(&second)); });
  second.Cancel(absl::CancelledError("no more"));
  waiter.join();  // hangs if it waits for the turn
  // Cancelled before it asks, also of a turn that is free.
  EXPECT_FALSE(turn.Take(&second));
  first.Cancel(absl::CancelledError("too late"));  // the turn is taken
  turn.Give();
  EXPECT_FALSE(turn.Take(&second));
  if (!turn.Take(nullptr)) FAIL() << "the turn is free";
  turn.Give();
}

TEST(PushTurnTest, OneAtATime) {
  PushTurn turn;
  int count = 0;  // ThreadSanitizer sees two at a time
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      CancelSource cancel;
      for (int i = 0; i < 1000; ++i) {
        if (i % 2 == 0) {
          PushTurnLock lock(&turn);
          ++count;
        } else if (turn.Take(&cancel)) {
          ++count;
          turn.Give();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 4 * 1000);
}

}  // namespace
}  // namespace agg
