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

}  // namespace
}  // namespace agg
