#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "worker_client/operation_runner.h"

namespace agg {
namespace {

TEST(OperationStateTest, WhoWaitsFirstRunsIt) {
  std::thread::id ran_on;
  int runs = 0;
  OperationState operation([&](OperationState*) {
    ran_on = std::this_thread::get_id();
    ++runs;
    return absl::DataLossError("so");
  });
  EXPECT_FALSE(operation.done());
  EXPECT_FALSE(operation.WaitUntil(absl::InfinitePast()));
  EXPECT_EQ(operation.Wait(), absl::DataLossError("so"));
  EXPECT_EQ(operation.Wait(), absl::DataLossError("so"));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(operation.WaitUntil(absl::InfinitePast()));
}

TEST(OperationStateTest, AllWhoWaitGetTheResult) {
  OperationState operation([](OperationState* self) {
    // Until somebody cancels it.
    while (self->cancel()->WaitFor(absl::Hours(1)).ok()) {
    }
    return self->cancel()->status();
  });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(operation.Wait(), absl::AbortedError("enough"));
      EXPECT_TRUE(operation.WaitUntil(absl::InfiniteFuture()));
    });
  }
  operation.Cancel(absl::AbortedError("enough"));
  for (std::thread& thread : threads) thread.join();
}

TEST(OperationStateTest, WhatHasNotBegunIsCancelledAtOnce) {
  int hooks = 0;
  OperationState operation(
      [](OperationState*) {
        ADD_FAILURE() << "it ran";
        return absl::OkStatus();
      },
      [&](const absl::Status& reason) {
        EXPECT_EQ(reason, absl::CancelledError("now"));
        ++hooks;
      });
  operation.Cancel(absl::CancelledError("now"));
  operation.Cancel(absl::CancelledError("too late"));
  EXPECT_TRUE(operation.done());
  EXPECT_EQ(operation.Wait(), absl::CancelledError("now"));
  EXPECT_EQ(hooks, 1);
}

TEST(OperationStateTest, CallbacksComeOnce) {
  std::vector<int> called;
  OperationState operation([&](OperationState*) {
    EXPECT_TRUE(called.empty());
    return absl::OkStatus();
  });
  operation.OnDone([&] {
    EXPECT_TRUE(operation.done());
    called.push_back(1);
    operation.OnDone([&] { called.push_back(2); });  // at once
  });
  operation.Run();
  operation.Run();
  EXPECT_EQ(called, (std::vector<int>{1, 2}));
}

TEST(OperationStateTest, LetsGoOfItsWork) {
  auto held = std::make_shared<int>(0);
  OperationState operation([held](OperationState*) { return absl::OkStatus(); },
                           [held](const absl::Status&) {});
  EXPECT_EQ(held.use_count(), 3);
  operation.Run();
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace agg
