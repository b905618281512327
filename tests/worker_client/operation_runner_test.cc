#include "worker_client/operation_runner.h"

#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace agg {
namespace {

using State = std::shared_ptr<OperationState>;

State UntilCancelled() {
  return std::make_shared<OperationState>([](OperationState* self) {
    while (self->cancel()->WaitFor(absl::Hours(1)).ok()) {
    }
    return self->cancel()->status();
  });
}

State At(std::thread::id* ran_on) {
  return std::make_shared<OperationState>([ran_on](OperationState*) {
    *ran_on = std::this_thread::get_id();
    return absl::OkStatus();
  });
}

TEST(OperationRunnerTest, OperationsGoOnWithoutTheirCaller) {
  OperationRunner runner;
  std::thread::id first, second;
  const State one = At(&first), two = At(&second);
  runner.Start(one);
  EXPECT_TRUE(one->WaitUntil(absl::InfiniteFuture()));
  EXPECT_NE(first, std::this_thread::get_id());
  runner.Start(two);
  EXPECT_TRUE(two->WaitUntil(absl::InfiniteFuture()));
  EXPECT_NE(second, std::this_thread::get_id());
}

TEST(OperationRunnerTest, OneThatLastsHoldsUpNoOther) {
  OperationRunner runner;
  const State lasts = UntilCancelled();
  runner.Start(lasts);
  std::thread::id ran_on;
  for (int i = 0; i < 10; ++i) {
    const State other = At(&ran_on);
    runner.Start(other);
    EXPECT_TRUE(other->WaitUntil(absl::InfiniteFuture()));
  }
  EXPECT_FALSE(lasts->done());
}

TEST(OperationRunnerTest, TheEndIsTheEndOfAll) {
  std::vector<State> operations;
  std::thread waiter;
  {
    OperationRunner runner;
    for (size_t i = 0; i < OperationRunner::kMaxOpen; ++i) {
      operations.push_back(UntilCancelled());
      runner.Start(operations.back());
    }
    const State one_more = UntilCancelled();
    runner.Start(one_more);
    EXPECT_TRUE(one_more->done());
    EXPECT_TRUE(absl::IsResourceExhausted(one_more->status()));
    operations[0]->Cancel(absl::CancelledError("room"));
    EXPECT_TRUE(operations[0]->WaitUntil(absl::InfiniteFuture()));
    operations.push_back(UntilCancelled());
    runner.Start(operations.back());
    waiter = std::thread([last = operations.back()] {
      EXPECT_TRUE(absl::IsCancelled(last->Wait()));
    });
  }
  for (const State& operation : operations) {
    EXPECT_TRUE(operation->done());
    EXPECT_TRUE(absl::IsCancelled(operation->status()));
  }
  waiter.join();
}

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
