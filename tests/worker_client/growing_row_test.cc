#include "worker_client/growing_row.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "worker_client/tensor_devices.h"

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

// A gradient's copy need not wait for those that are computed after it.
TEST_F(GrowingRowTest, ATensorWaitsForWhatItsDeviceHadToDoWhenItCame) {
  char* const memory = fake_cuda::Alloc(8);
  {
    TensorDevices devices;
    GrowingRow grows(&router, DType::kF32, &devices);
    bool made = false, late = false;
    fake_cuda::Launch(0, [&made] { made = true; });
    ASSERT_TRUE(
        grows
            .Give({TensorView("a",
                              absl::Span<const float>(
                                  reinterpret_cast<const float*>(memory), 2)),
                   TensorView("maybe", maybe)})
            .ok());
    fake_cuda::Launch(0, [&late] { late = true; });
    const DeviceEvent* const mark = GrowingRow(grows).bound_row().mark(0);
    ASSERT_NE(mark, nullptr);
    EXPECT_EQ(grows.bound_row().mark(3), nullptr) << "of the host";
    ASSERT_TRUE(mark->Synchronize().ok());
    EXPECT_TRUE(made);
    EXPECT_FALSE(late);
    ASSERT_TRUE((*devices.Mark(0))->Synchronize().ok());
    EXPECT_TRUE(late);
    fake_cuda::Fail("cuEventRecord", 700);
    const absl::Status failed = grows.Give(
        {TensorView("b", absl::Span<const float>(
                             reinterpret_cast<const float*>(memory), 3))});
    fake_cuda::Fail("cuEventRecord", 0);
    EXPECT_TRUE(absl::IsInternal(failed)) << failed;
  }
  fake_cuda::Free(memory);
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
