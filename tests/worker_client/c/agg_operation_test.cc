// Operations of the C ABI against a job in this process: rounds from C,
// mistakes, ends, forks.
#include "worker_client/c/agg_operation.h"

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_client/c/agg_calls.h"
#include "tests/worker_client/client_fixture.h"
#include "tests/worker_client/fake_job.h"
#include "worker_client/c/agg.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As long as nothing hangs, nobody waits for so long (s).
constexpr double kLong = 60;

TEST(AggOperationRoundsTest, AWorkerInC) {
  FakeJob::Options options;
  options.num_shards = 2;
  FakeJob job({{Spec("a", {2, 2}), Spec("b", {}, true)}}, options);
  const char* const wrong = RunOperations(job.coordinator().c_str());
  EXPECT_EQ(wrong, nullptr) << wrong;
  EXPECT_EQ(job.leaves(), 1);
}

class AggOperationTest : public ::testing::Test {
 protected:
  AggOperationTest() : job_({{Spec("x", {2}), Spec("y", {2})}}, {}) {
    agg_options options;
    agg_options_init(&options, sizeof(options));
    const std::string coordinator = job_.coordinator();
    options.coordinator = coordinator.c_str();
    options.specs = specs_;
    options.num_specs = 2;
    client_ = agg_new(&options);
    EXPECT_EQ(agg_connect(client_), AGG_OK) << agg_error();
    EXPECT_EQ(agg_seed_or_pull(client_, targets_, 2), AGG_OK) << agg_error();
  }
  ~AggOperationTest() override { agg_free(client_); }

  agg_operation* Round() {
    agg_operation* round = nullptr;
    EXPECT_EQ(agg_start_round(client_, nullptr, views_, 2, nullptr, targets_, 2,
                              &round),
              AGG_OK)
        << agg_error();
    return round;
  }

  const int64_t shape_[1] = {2};
  const agg_spec specs_[2] = {{"x", nullptr, shape_, 1, 0},
                              {"y", nullptr, shape_, 1, 0}};
  FakeJob job_;
  agg_client* client_ = nullptr;
  float x_[2] = {1, 2}, y_[2] = {3, 4};
  float row_[2] = {1, 1};
  const agg_target targets_[2] = {{x_, 2}, {y_, 2}};
  const agg_view views_[2] = {{row_, 2, AGG_F32, 0}, {row_, 2, AGG_F32, 0}};
  const uint64_t first_ = 0;
};

TEST_F(AggOperationTest, MistakesAreCodesAndGiveNoHandle) {
  agg_operation* operation = nullptr;
  const uint64_t wrong = 2;
  EXPECT_EQ(agg_start_push(client_, &wrong, views_, 1, &operation),
            AGG_INVALID_ARGUMENT);
  EXPECT_THAT(agg_error(), HasSubstr("tensors[0] is 2; allowed: 0 to 1"));
  EXPECT_EQ(agg_start_push(client_, &first_, nullptr, 1, &operation),
            AGG_INVALID_ARGUMENT);
  EXPECT_EQ(agg_start_pull(client_, 0, targets_, 1, 0, &operation),
            AGG_INVALID_ARGUMENT);
  const agg_view short_view = {row_, 1, AGG_F32, 0};
  EXPECT_EQ(agg_start_push(client_, &first_, &short_view, 1, &operation),
            AGG_INVALID_ARGUMENT);
  EXPECT_EQ(agg_start_push(nullptr, &first_, views_, 1, &operation),
            AGG_INVALID_ARGUMENT);
  EXPECT_EQ(operation, nullptr);
  EXPECT_EQ(agg_operation_done(nullptr, 0), 1);
  EXPECT_EQ(agg_operation_end(nullptr, nullptr), AGG_INVALID_ARGUMENT);
  agg_operation_free(nullptr);
}

TEST_F(AggOperationTest, AFailedCallLeavesNoHandleThatWasFreed) {
  int freed = 0;
  const auto after = [&](const std::function<int32_t(agg_operation**)>& begin) {
    auto* operation = reinterpret_cast<agg_operation*>(&freed);
    EXPECT_EQ(begin(&operation), AGG_INVALID_ARGUMENT);
    return operation;
  };
  const uint64_t wrong = 2;
  EXPECT_EQ(after([&](agg_operation** out) {
              return agg_start_push(client_, &wrong, views_, 1, out);
            }),
            nullptr);
  EXPECT_EQ(after([&](agg_operation** out) {
              return agg_start_pull(client_, 0, targets_, 1, 0, out);
            }),
            nullptr);
  EXPECT_EQ(after([&](agg_operation** out) {
              return agg_start_round(client_, &wrong, views_, 1, nullptr,
                                     targets_, 2, out);
            }),
            nullptr);
  EXPECT_EQ(after([&](agg_operation** out) {
              return agg_start_reduce(client_, nullptr, nullptr, 0, out);
            }),
            nullptr);
  EXPECT_EQ(after([&](agg_operation** out) {
              return agg_start_commit(nullptr, nullptr, out);
            }),
            nullptr);
  EXPECT_EQ(after([&](agg_operation** out) {
              return agg_resume_round(nullptr, out);
            }),
            nullptr);
}

TEST_F(AggOperationTest, AReductionsMistakesAreNamed) {
  agg_operation* sums = nullptr;
  double value = 1;
  EXPECT_EQ(agg_start_reduce(client_, nullptr, &value, 1, &sums),
            AGG_INVALID_ARGUMENT);
  EXPECT_THAT(agg_error(), HasSubstr("what is NULL"));
  EXPECT_EQ(agg_start_reduce(client_, "x", nullptr, 1, &sums),
            AGG_INVALID_ARGUMENT);
  EXPECT_THAT(agg_error(), HasSubstr("values is NULL"));
  int32_t code = agg_start_reduce(client_, "no \xff", &value, 1, &sums);
  if (code == AGG_OK) {
    code =
        agg_operation_sums(sums, &value, 1, nullptr, nullptr, nullptr, nullptr);
  }
  EXPECT_EQ(code, AGG_INVALID_ARGUMENT);
  EXPECT_THAT(agg_error(), HasSubstr("allowed: UTF-8"));
  agg_operation_free(sums);
  agg_operation* const round = Round();
  EXPECT_EQ(
      agg_operation_sums(round, &value, 1, nullptr, nullptr, nullptr, nullptr),
      AGG_FAILED_PRECONDITION);
  EXPECT_THAT(agg_error(), HasSubstr("reduces nothing"));
  agg_operation_free(round);
}

TEST_F(AggOperationTest, AnIncompleteRowIsNoRound) {
  ASSERT_EQ(agg_start_push(client_, &first_, views_, 1, nullptr), AGG_OK);
  EXPECT_EQ(agg_start_round(client_, nullptr, nullptr, 0, nullptr, targets_, 2,
                            nullptr),
            AGG_INVALID_ARGUMENT);
  EXPECT_THAT(agg_error(), HasSubstr("\"y\""));
  const uint64_t second = 1;
  EXPECT_EQ(agg_start_round(client_, &second, views_, 1, nullptr, targets_, 2,
                            nullptr),
            AGG_OK)
      << agg_error();
}

TEST_F(AggOperationTest, CancelEndsARoundThatWaitsForOthers) {
  job_.HoldCommits();
  agg_operation* const round = Round();
  job_.AwaitCommits(1);
  EXPECT_EQ(agg_operation_done(round, 0), 0);
  EXPECT_EQ(agg_operation_cancel(round), AGG_OK);
  EXPECT_EQ(agg_operation_done(round, kLong), 1);
  EXPECT_EQ(agg_operation_end(round, nullptr), AGG_CANCELLED);
  EXPECT_STRNE(agg_error(), "");
  EXPECT_EQ(agg_operation_await_tensor(round, "x", kLong), AGG_CANCELLED);
  agg_operation_free(round);
}

TEST_F(AggOperationTest, AnInterruptEndsARoundInsideItsCall) {
  const auto round = [this] {
    return agg_push_pull(client_, views_, 2, nullptr, targets_, 2, nullptr);
  };
  EXPECT_EQ(agg_interrupt(client_), AGG_OK);  // nobody
  EXPECT_EQ(round(), AGG_OK) << agg_error();
  EXPECT_THAT(x_, ElementsAre(0, 1));
  job_.HoldCommits();
  for (int commits = 3; commits < 5; ++commits) {  // the seed, the first round
    int32_t code = AGG_OK;
    std::thread waits([&] { code = round(); });
    job_.AwaitCommits(commits);
    EXPECT_EQ(agg_interrupt(client_), AGG_OK);
    waits.join();
    EXPECT_EQ(code, AGG_CANCELLED);
  }
  EXPECT_EQ(agg_interrupt(nullptr), AGG_INVALID_ARGUMENT);
}

TEST_F(AggOperationTest, ARoundGoesOnWhereAnInterruptHasEndedIt) {
  agg_operation* operation = nullptr;
  EXPECT_EQ(agg_resume_round(client_, &operation), AGG_NOT_FOUND);
  job_.HoldCommits();
  int32_t code = AGG_OK;
  std::thread waits([&] {
    code = agg_push_pull(client_, views_, 2, nullptr, targets_, 2, nullptr);
  });
  job_.AwaitCommits(2);  // the seed's, too
  EXPECT_EQ(agg_resume_round(client_, &operation), AGG_NOT_FOUND);
  EXPECT_EQ(agg_interrupt(client_), AGG_OK);
  waits.join();
  EXPECT_EQ(code, AGG_CANCELLED);
  EXPECT_EQ(agg_resume_round(nullptr, &operation), AGG_INVALID_ARGUMENT);
  EXPECT_EQ(operation, nullptr);
  job_.ReleaseCommits();
  ASSERT_EQ(agg_resume_round(client_, &operation), AGG_OK) << agg_error();
  EXPECT_EQ(agg_operation_await_tensor(operation, "x", kLong), AGG_OK);
  agg_outcome outcome = {};
  outcome.size = sizeof(outcome);
  EXPECT_EQ(agg_operation_end(operation, &outcome), AGG_OK) << agg_error();
  EXPECT_EQ(outcome.version, 1u);
  EXPECT_EQ(outcome.included, 1);
  EXPECT_THAT(x_, ElementsAre(0, 1));
  EXPECT_EQ(job_.commit().attempt(), 0u);
  agg_operation_free(operation);
  EXPECT_EQ(agg_resume_round(client_, nullptr), AGG_NOT_FOUND);
}

TEST_F(AggOperationTest, CopiesTensorsOfEqualSizes) {
  float a[2] = {0, 0}, b[1] = {7};
  const agg_target from[2] = {{x_, 2}, {y_, 1}};
  agg_target to[2] = {{a, 2}, {b, 1}};
  EXPECT_EQ(agg_copy(from, to, 2), AGG_OK) << agg_error();
  EXPECT_THAT(a, ElementsAre(1, 2));
  EXPECT_THAT(b, ElementsAre(3));
  EXPECT_EQ(agg_copy(nullptr, nullptr, 0), AGG_OK);
  EXPECT_EQ(agg_copy(from, nullptr, 2), AGG_INVALID_ARGUMENT);
  a[0] = 9;
  to[1].num_elements = 2;
  EXPECT_EQ(agg_copy(from, to, 2), AGG_INVALID_ARGUMENT);
  EXPECT_THAT(agg_error(), HasSubstr("to[1].num_elements is 2; allowed: 1"));
  EXPECT_THAT(a, ElementsAre(9, 2));
}

TEST_F(AggOperationTest, HandlesOutliveTheirClient) {
  job_.HoldCommits();
  agg_operation* const round = Round();
  job_.AwaitCommits(1);
  agg_free(client_);
  client_ = nullptr;
  EXPECT_EQ(agg_operation_done(round, 0), 1);
  EXPECT_EQ(agg_operation_end(round, nullptr), AGG_CANCELLED);
  agg_operation_free(round);
}

TEST_F(AggOperationTest, AForkedChildHasNoOperation) {
  job_.HoldCommits();
  agg_operation* const round = Round();
  const pid_t child = fork();
  if (child == 0) {
    const bool refused =
        agg_operation_end(round, nullptr) == AGG_FORKED &&
        agg_operation_done(round, kLong) == 1 &&
        agg_operation_cancel(round) == AGG_FORKED &&
        agg_start_push(client_, nullptr, views_, 2, nullptr) == AGG_FORKED;
    agg_operation_free(round);
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(agg_operation_done(round, 0), 0) << "the child ended it";
  EXPECT_EQ(agg_operation_cancel(round), AGG_OK);
  EXPECT_EQ(agg_operation_end(round, nullptr), AGG_CANCELLED);
  agg_operation_free(round);
}

}  // namespace
}  // namespace agg
