#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "server/shard/shard_engine.h"

namespace agg {
namespace {

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
