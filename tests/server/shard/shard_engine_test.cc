#include "server/shard/shard_engine.h"

#include <atomic>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "server/base/job_phase.h"
#include "server/base/mutex.h"
#include "server/round/phase.h"
#include "tests/server/round/local_cluster.h"

namespace agg {
namespace {

using testing::ElementsAre;

absl::Status UpdateOf(ClosedRound* round, ShardCompute* compute,
                      const StepPlan& step, int* num_revoked) {
  const absl::Status taken = round->TakeMemory(compute, num_revoked);
  return taken.ok() ? round->Update(compute, step) : taken;
}

// One row, {3, 4} in slice 0 and {2} in slice 1.
class ClosedRoundTest : public testing::Test {
 protected:
  ClosedRoundTest() {
    Manifest manifest;
    manifest.tensors = {{"a", {2}, "", false}, {"b", {1}, "", false}};
    compute_ = *ShardCompute::Create(ShardOptions(), backend_.get(), manifest);
    compute_->rows()->Add(0, *compute_->AllocateRow(compute_->PlanWith(1)));
    EXPECT_TRUE(compute_->TakeSeed().ok());
    Write(PushKind::kGradient, 0, {3.0f, 4.0f});
    Write(PushKind::kGradient, 1, {2.0f});
    Write(PushKind::kSeed, 0, {0.0f, 0.0f});
    Write(PushKind::kSeed, 1, {0.0f});
    EXPECT_TRUE(compute_->LoadSeed(compute_->seed().get()).ok());
    compute_->store()->Publish(0, compute_->seed());
    compute_->ReleaseSeed();
    step_.coefficients = {1.0};
    step_.learning_rate = 0.5;
  }

  void Write(PushKind kind, int32_t slice, const std::vector<float>& values) {
    std::memcpy(compute_->LandingPlace(kind, 0, 10, slice).elements,
                values.data(), values.size() * sizeof(float));
  }

  const std::unique_ptr<Backend> backend_ = *MakeBackend("cpu", {1});
  std::unique_ptr<ShardCompute> compute_;
  StepPlan step_;
  ClosedRound round_{{{0, 10}}, {7}, {}};
};

TEST_F(ClosedRoundTest, ARoundThatIsNotClosedHasNothing) {
  const ClosedRound open;
  EXPECT_FALSE(open.close_result().has_value());
  EXPECT_FALSE(open.has_grams());
  EXPECT_EQ(open.updated(), nullptr);
}

TEST_F(ClosedRoundTest, IncompleteRowsAreTheResultOfItsClose) {
  const ClosedRound refused({{0, 10}, {2, 30}}, {}, {2});
  ASSERT_TRUE(refused.close_result().has_value());
  EXPECT_THAT(refused.close_result()->incomplete_ranks, ElementsAre(2));
  EXPECT_FALSE(refused.has_grams());
}

TEST_F(ClosedRoundTest, ComputesTheGramsThatAreNotThere) {
  std::vector<std::optional<SliceGram>> early(2);
  early[1] = SliceGram{1, {42.0}, {}};
  EXPECT_FALSE(round_.has_grams());
  const auto result = round_.Close(compute_.get(), std::move(early));
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->grams.size(), 2u);
  EXPECT_THAT(result->grams[0].hi, ElementsAre(25.0));
  EXPECT_THAT(result->grams[1].hi, ElementsAre(42.0));
  EXPECT_TRUE(round_.has_grams());
  EXPECT_EQ(round_.close_result()->grams.size(), 2u);
}

TEST_F(ClosedRoundTest, CompensatesTheTensorsThatAreAskedFor) {
  const auto second = round_.CompensatedGram(compute_.get(), {1});
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_EQ(second->grams.size(), 1u);
  EXPECT_EQ(second->grams[0].slice, 1);
  EXPECT_THAT(second->grams[0].hi, ElementsAre(4.0));
  const auto first = round_.CompensatedGram(compute_.get(), {0});
  EXPECT_THAT(first->grams[0].hi, ElementsAre(25.0));
}

TEST_F(ClosedRoundTest, ARepeatGivesTheSameThoughTheRowChanges) {
  ASSERT_TRUE(round_.CompensatedGram(compute_.get(), {0}).ok());
  Write(PushKind::kGradient, 0, {1.0f, 1.0f});
  const auto repeated = round_.CompensatedGram(compute_.get(), {0});
  EXPECT_THAT(repeated->grams[0].hi, ElementsAre(25.0));
}

TEST_F(ClosedRoundTest, StepsOnce) {
  int num_revoked = -1;
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(num_revoked, 0);
  const std::shared_ptr<const Snapshot> updated = round_.updated();
  ASSERT_NE(updated, nullptr);
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(round_.updated(), updated);
  float value;
  std::memcpy(&value, updated->data(DType::kF32), sizeof(value));
  EXPECT_EQ(value, -1.5f);  // 0 - 0.5 * 3
}

// Tensor "b" is in the group "g".
class GroupRatesTest : public testing::Test {
 protected:
  GroupRatesTest() {
    Manifest manifest;
    manifest.tensors = {{"a", {1}, "", false}, {"b", {1}, "g", false}};
    ShardOptions options;
    options.groups = {{"other", 1.0f, 0.0f}, {"g", 0.5f, 0.0f}};
    compute_ = *ShardCompute::Create(options, backend_.get(), manifest);
    compute_->rows()->Add(0, *compute_->AllocateRow(compute_->PlanWith(1)));
    EXPECT_TRUE(compute_->TakeSeed().ok());
    for (const int32_t slice : {0, 1}) {
      Write(PushKind::kSeed, slice, 0.0f);
      Write(PushKind::kGradient, slice, 1.0f);
    }
    EXPECT_TRUE(compute_->LoadSeed(compute_->seed().get()).ok());
    compute_->store()->Publish(0, compute_->seed());
    compute_->ReleaseSeed();
    step_.coefficients = {1.0};
    step_.learning_rate = 100.0;
  }

  void Write(PushKind kind, int32_t slice, float value) {
    std::memcpy(compute_->LandingPlace(kind, 0, 10, slice).elements, &value,
                sizeof(value));
  }

  const std::unique_ptr<Backend> backend_ = *MakeBackend("cpu", {1});
  std::unique_ptr<ShardCompute> compute_;
  StepPlan step_;
};

TEST_F(GroupRatesTest, TakeThePlaceOfTheRate) {
  step_.group_rates = {0.25, 7.0, 3.0};
  ClosedRound round({{0, 10}}, {7}, {});
  int num_revoked = 0;
  ASSERT_TRUE(UpdateOf(&round, compute_.get(), step_, &num_revoked).ok());
  const auto value = [&](size_t slice) {
    float found;
    std::memcpy(&found,
                round.updated()->data(DType::kF32) +
                    compute_->layout()->ranges[slice].begin * sizeof(float),
                sizeof(found));
    return found;
  };
  EXPECT_EQ(value(0), -0.25f);
  EXPECT_EQ(value(1), -1.5f);  // times the group's factor
}

TEST_F(GroupRatesTest, AGroupWithoutOneIsNamed) {
  step_.group_rates = {0.25, 7.0};
  ClosedRound round({{0, 10}}, {7}, {});
  int num_revoked = 0;
  const absl::Status status =
      UpdateOf(&round, compute_.get(), step_, &num_revoked);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      testing::HasSubstr("learning rates of 2 groups; allowed: none, or "
                         "one for each group of the configuration and "
                         "one for tensors in none, among them 2, \"g\""));
}

TEST(NarrowedRoundTest, CountsWhatItsPullDtypeCannotHold) {
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu", {1});
  Manifest manifest;
  manifest.tensors = {{"a", {2}, "", false}, {"b", {3}, "", false}};
  ShardOptions options;
  options.pull_dtype = DType::kF16;
  const auto compute = *ShardCompute::Create(options, backend.get(), manifest);
  compute->rows()->Add(0, *compute->AllocateRow(compute->PlanWith(1)));
  const auto write = [&](PushKind kind, int32_t slice,
                         const std::vector<float>& values) {
    std::memcpy(compute->LandingPlace(kind, 0, 10, slice).elements,
                values.data(), values.size() * sizeof(float));
  };
  ASSERT_TRUE(compute->TakeSeed().ok());
  write(PushKind::kSeed, 0, {0.0f, 0.0f});
  write(PushKind::kSeed, 1, {0.0f, 0.0f, 0.0f});
  ASSERT_TRUE(compute->LoadSeed(compute->seed().get()).ok());
  compute->store()->Publish(0, compute->seed());
  compute->ReleaseSeed();
  write(PushKind::kGradient, 0, {-65504.0f, 1e-9f});
  write(PushKind::kGradient, 1, {-320000.0f, 70000.0f, 0.0f});
  StepPlan step;
  step.coefficients = {1.0};
  step.learning_rate = 1.0;
  ClosedRound round({{0, 10}}, {7}, {});
  int num_revoked = 0;
  ASSERT_TRUE(UpdateOf(&round, compute.get(), step, &num_revoked).ok());
  EXPECT_EQ(round.not_finite_slice(), -1);  // as float32
  EXPECT_EQ(compute->narrowing().slice, 1);
  EXPECT_EQ(compute->narrowing().num_infinite, 2u);
  EXPECT_EQ(compute->narrowing().num_compared, 4u);
  EXPECT_EQ(compute->narrowing().num_vanished, 1u);
  // What the next round loses is its own.
  compute->store()->Publish(1, round.updated());
  write(PushKind::kGradient, 1, {320000.0f, -70000.0f, 1.0f});
  write(PushKind::kGradient, 0, {65504.0f, -1e-9f});
  round = ClosedRound({{0, 10}}, {7}, {});
  ASSERT_TRUE(UpdateOf(&round, compute.get(), step, &num_revoked).ok());
  EXPECT_EQ(compute->narrowing().slice, -1);
  EXPECT_EQ(compute->narrowing().num_infinite, 0u);
  EXPECT_EQ(compute->narrowing().num_vanished, 0u);
  EXPECT_EQ(compute->narrowing().num_compared, 1u);
}

TEST_F(ClosedRoundTest, NamesTheFirstSliceThatIsNotFinite) {
  Write(PushKind::kGradient, 0, {3.0f, 0.0f});
  Write(PushKind::kGradient, 1, {3e38f});
  step_.learning_rate = 1e30;
  step_.coefficients = {1e-30};
  int num_revoked = 0;
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(round_.not_finite_slice(), -1);
  round_ = ClosedRound({{0, 10}}, {7}, {});
  step_.coefficients = {1.0};
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(round_.not_finite_slice(), 1);
  // A repeat says the same, although it computes nothing.
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  EXPECT_EQ(round_.not_finite_slice(), 1);
}

// A step may name the tensors that it is about, in any number.
TEST_F(ClosedRoundTest, StepsWithTheCoefficientsOfItsOwnTensors) {
  step_.per_tensor = true;
  step_.tensors = {1};
  int num_revoked = 0;
  const absl::Status status =
      UpdateOf(&round_, compute_.get(), step_, &num_revoked);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr("step lacks tensor 0"));
  step_.tensors = {0, 1};
  step_.coefficients = {1.0, 2.0};
  ASSERT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
  const float* values =
      reinterpret_cast<const float*>(round_.updated()->data(DType::kF32));
  EXPECT_EQ(values[0], -1.5f);  // 0 - 0.5 * 1 * 3
  EXPECT_EQ(values[compute_->layout()->ranges[1].begin], -2.0f);
}

TEST_F(ClosedRoundTest, AnErrorIsNotKept) {
  StepPlan bad = step_;
  bad.coefficients.clear();
  int num_revoked = 0;
  EXPECT_FALSE(UpdateOf(&round_, compute_.get(), bad, &num_revoked).ok());
  EXPECT_EQ(round_.updated(), nullptr);
  EXPECT_TRUE(UpdateOf(&round_, compute_.get(), step_, &num_revoked).ok());
}

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

// A backend that hangs in a phase: what a shard says about it, and its end.

TEST(HangTest, ThePhaseThatRunsIsKnown) {
  RunningJob job(MakeClusterOptions(1, 1), MakeManifest({{40}}), 1);
  ShardEngine* const engine = job.cluster.engine(0);
  EXPECT_FALSE(engine->running_phase().has_value());
  std::optional<RunningPhase> running;
  // Answered within the phase that publishes the version.
  engine->Pull(0, 1, false, [&](const absl::StatusOr<PublishedVersion>&) {
    running = engine->running_phase();
  });
  job.RunRound(0);
  ASSERT_TRUE(running.has_value());
  EXPECT_EQ(running->kind, PhaseKind::kUpdate);
  EXPECT_EQ(running->round, 0u);
  EXPECT_GT(running->number, 1u);
  EXPECT_FALSE(engine->running_phase().has_value());
}

TEST(HangTest, IsTheEndOfTheShardsProcess) {
  std::vector<absl::Status> ends;
  ClusterOptions options = MakeClusterOptions(2, 1);
  options.on_device_lost = [&](const absl::Status& status) {
    ends.push_back(status);
  };
  RunningJob job(options, MakeManifest({{40}, {7}}), 1);
  const uint64_t epoch = job.workers[0].joined().epoch;
  job.cluster.engine(1)->ReportHang(
      absl::UnavailableError("phase close of round 0 hangs"));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0],
            absl::UnavailableError("shard 1: phase close of round 0 hangs"));
  job.cluster.Settle();
  EXPECT_EQ(job.cluster.Status().phase, JobPhase::kShardLost);
  EXPECT_EQ(job.cluster.engine(1)->Attach(epoch + 1, nullptr).status(),
            ends[0]);
}

TEST(PullQueueTest, AnswersThoseThatHaveAnAnswer) {
  PullQueue<int> queue;
  std::vector<std::string> heard;
  const auto listen = [&](const std::string& name) {
    return [&heard, name](absl::StatusOr<int> value) {
      heard.push_back(name + "=" + std::to_string(value.value_or(-1)));
    };
  };
  EXPECT_EQ(queue.Add({1, 5, false, listen("five")}), 1);
  EXPECT_EQ(queue.Add({1, 6, false, listen("six")}), 2);
  const int64_t seven = queue.Add({1, 7, false, listen("seven")});
  const auto answer = [](uint64_t published) {
    return [published](const PullQueue<int>::Request& request) {
      if (request.version > published) return PullQueue<int>::Answer();
      return PullQueue<int>::Answer(static_cast<int>(request.version));
    };
  };
  const auto none = queue.Resolve(answer(4));
  EXPECT_TRUE(none.empty());
  const auto two = queue.Resolve(answer(6));
  EXPECT_TRUE(heard.empty());  // the owner runs them
  for (const auto& closure : two) closure();
  EXPECT_THAT(heard, ElementsAre("five=5", "six=6"));
  queue.Remove(seven);
  EXPECT_TRUE(queue.Resolve(answer(9)).empty());
}

// Ends once it may, and notes how many have.
class SlowRow : public Buffer {
 public:
  SlowRow(std::shared_future<void> may_end, std::atomic<int>* num_ended)
      : may_end_(std::move(may_end)), num_ended_(num_ended) {}
  ~SlowRow() override {
    may_end_.wait();
    ++*num_ended_;
  }
  char* host() const override { return nullptr; }
  int64_t num_bytes() const override { return 0; }

 private:
  const std::shared_future<void> may_end_;
  std::atomic<int>* const num_ended_;
};

TEST(RowReleaserTest, ReleaseDoesNotWaitAndWaitDoes) {
  std::promise<void> may_end;
  const std::shared_future<void> ending = may_end.get_future().share();
  std::atomic<int> num_ended{0};
  RowReleaser releaser;
  releaser.Wait();  // for nothing
  releaser.Release(std::make_shared<SlowRow>(ending, &num_ended));
  releaser.Release(std::make_shared<SlowRow>(ending, &num_ended));
  EXPECT_EQ(num_ended, 0);
  may_end.set_value();
  releaser.Wait();
  EXPECT_EQ(num_ended, 2);
}

TEST(RowReleaserTest, ItsEndComesAfterThatOfAllRows) {
  std::promise<void> may_end;
  const std::shared_future<void> ending = may_end.get_future().share();
  std::atomic<int> num_ended{0};
  {
    RowReleaser releaser;
    for (int i = 0; i < 3; ++i) {
      releaser.Release(std::make_shared<SlowRow>(ending, &num_ended));
    }
    may_end.set_value();
  }
  EXPECT_EQ(num_ended, 3);
}

TEST(RowReleaserTest, ARowThatSomebodyHoldsStays) {
  std::promise<void> may_end;
  may_end.set_value();
  std::atomic<int> num_ended{0};
  auto held =
      std::make_shared<SlowRow>(may_end.get_future().share(), &num_ended);
  RowReleaser releaser;
  releaser.Release(held);
  releaser.Wait();
  EXPECT_EQ(num_ended, 0);
  held = nullptr;
  EXPECT_EQ(num_ended, 1);
}

}  // namespace
}  // namespace agg
