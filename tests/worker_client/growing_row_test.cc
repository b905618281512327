#include "worker_client/growing_row.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GrowingRowTest : public ::testing::Test {
 protected:
  std::vector<int> Take() { return row.Take(&cursor); }

  const ShardRouter router = *ShardRouter::Create({{{"a", {2}, "", false},
                                                    {"empty", {0}, "", false},
                                                    {"b", {3}, "", false},
                                                    {"maybe", {1}, "", true}}},
                                                  2);
  const std::vector<float> a{1, 2}, b{3, 4, 5}, maybe{6};
  GrowingRow row{&router, DType::kF32};
  size_t cursor = 0;
};

TEST_F(GrowingRowTest, TensorsComeInAnyOrder) {
  EXPECT_THAT(Take(), IsEmpty());
  ASSERT_TRUE(row.Give({TensorView("b", b)}).ok());
  EXPECT_THAT(Take(), ElementsAre(2));
  EXPECT_EQ(row.bound()[2].data, b.data());
  ASSERT_TRUE(row.Give({TensorView("maybe", maybe), TensorView("a", a)}).ok());
  EXPECT_FALSE(row.complete());
  EXPECT_THAT(Take(), ElementsAre(3, 0));
  ASSERT_TRUE(row.Complete().ok());
  EXPECT_TRUE(row.complete());
  EXPECT_THAT(Take(), ElementsAre(1));
  // Who begins again gets all of it.
  size_t again = 0;
  EXPECT_THAT(row.Take(&again), ElementsAre(2, 3, 0, 1));
}

TEST_F(GrowingRowTest, WithEveryTensorItIsComplete) {
  const float none = 0;
  ASSERT_TRUE(row.Give({TensorView("maybe", maybe), TensorView("a", a),
                        TensorView("empty", absl::MakeConstSpan(&none, 0)),
                        TensorView("b", b)})
                  .ok());
  EXPECT_TRUE(row.complete());
}

TEST_F(GrowingRowTest, OnlyOptionalTensorsMayBeMissing) {
  ASSERT_TRUE(row.Give({TensorView("a", a)}).ok());
  const absl::Status missing = row.Complete();
  EXPECT_TRUE(absl::IsInvalidArgument(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("\"b\" is missing"));
  EXPECT_FALSE(row.complete());
  ASSERT_TRUE(row.Give({TensorView("b", b)}).ok());
  EXPECT_TRUE(row.Complete().ok());
  EXPECT_EQ(row.bound()[3].data, nullptr);
}

TEST_F(GrowingRowTest, ARefusedCallGivesNothing) {
  ASSERT_TRUE(row.Give({TensorView("a", a)}).ok());
  Take();
  const std::vector<std::pair<std::vector<TensorView>, const char*>> cases = {
      {{TensorView("b", b), TensorView("a", a)}, "\"a\" was given"},
      {{TensorView("b", b), TensorView("b", b)}, "given twice"},
      {{TensorView("b", b), TensorView("c", a)}, "not in the job's manifest"},
      {{TensorView("maybe", maybe), TensorView("b", a)}, "2 elements"},
  };
  for (const auto& [views, message] : cases) {
    const absl::Status status = row.Give(views);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
    EXPECT_THAT(Take(), IsEmpty());
  }
  ASSERT_TRUE(row.Give({TensorView("b", b)}).ok());
  ASSERT_TRUE(row.Complete().ok());
  EXPECT_THAT(std::string(row.Give({TensorView("maybe", maybe)}).message()),
              HasSubstr("comes after the row was complete"));
}

TEST_F(GrowingRowTest, TheFirstReasonOfACancelStays) {
  EXPECT_TRUE(row.cancelled().ok());
  row.Cancel(absl::CancelledError("one"));
  row.Cancel(absl::CancelledError("two"));
  EXPECT_EQ(row.cancelled(), absl::CancelledError("one"));
}

TEST_F(GrowingRowTest, WhoPushesIsWokenOnceUntilItLooks) {
  grpc::CompletionQueue queue;
  QueueWaker waker(&queue);
  row.SetWaker(&waker);
  void* tag = nullptr;
  bool ok = false;
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(
        row.Give({name[0] == 'a' ? TensorView("a", a) : TensorView("b", b)})
            .ok());
    row.Cancel(absl::CancelledError("also"));
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(tag, &waker);
    waker.TakeEvent();
  }
  row.SetWaker(nullptr);
  ASSERT_TRUE(row.Complete().ok());  // wakes nobody
  queue.Shutdown();
  EXPECT_FALSE(queue.Next(&tag, &ok));
}

}  // namespace
}  // namespace agg
