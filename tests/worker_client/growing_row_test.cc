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
  std::vector<int> Take() {
    const auto taken = row.Take(&cursor);
    EXPECT_TRUE(taken.ok()) << taken.status();
    EXPECT_FALSE(taken.ok() && taken->waits);
    return taken.ok() ? taken->tensors : std::vector<int>();
  }

  const ShardRouter router = *ShardRouter::Create({{{"a", {2}, "", false},
                                                    {"empty", {0}, "", false},
                                                    {"b", {3}, "", false},
                                                    {"maybe", {1}, "", true}}},
                                                  2);
  const std::vector<float> a{1, 2}, b{3, 4, 5}, maybe{6};
  GrowingRow row{&router, DType::kF32};
  GrowingRow::Cursor cursor;
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
  cursor = {};
  EXPECT_THAT(Take(), ElementsAre(2, 3, 0, 1));
}

TEST_F(GrowingRowTest, SaysWhichTensorsItLacks) {
  ASSERT_TRUE(row.Give({TensorView("b", b), TensorView("a", a)}).ok());
  ASSERT_TRUE(row.Complete().ok());
  EXPECT_EQ(row.absent_tensors(), "\x08");  // not the one without elements
  GrowingRow whole(&router, DType::kF32);
  ASSERT_TRUE(whole
                  .Give({TensorView("b", b), TensorView("a", a),
                         TensorView("maybe", maybe)})
                  .ok());
  ASSERT_TRUE(whole.Complete().ok());
  EXPECT_EQ(whole.absent_tensors(), "");
}

// A tensor of a device is there when its device has done what it had to do when
// the tensor came, and not what came later.
TEST_F(GrowingRowTest, ATensorWaitsForWhatItsDeviceHadToDoWhenItCame) {
  char* const memory = fake_cuda::Alloc(16);
  const auto there = [memory](size_t count) {
    return absl::Span<const float>(reinterpret_cast<const float*>(memory),
                                   count);
  };
  {
    TensorDevices devices;
    GrowingRow grows(&router, DType::kF32, &devices);
    bool made = false, late = false;
    fake_cuda::Hang(0, true);
    fake_cuda::Launch(0, [&made] { made = true; });
    ASSERT_TRUE(grows.Give({TensorView("maybe", maybe)}).ok());
    ASSERT_TRUE(grows.Give({TensorView("a", there(2))}).ok());
    fake_cuda::Launch(0, [&late] { late = true; });
    ASSERT_TRUE(grows.Give({TensorView("b", there(3))}).ok());
    auto taken = grows.Take(&cursor);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_THAT(taken->tensors, ElementsAre(3)) << "of the host";
    EXPECT_TRUE(taken->waits);
    fake_cuda::Hang(0, false);
    do {
      taken = grows.Take(&cursor);
      ASSERT_TRUE(taken.ok()) << taken.status();
    } while (taken->tensors.empty());
    EXPECT_THAT(taken->tensors, ElementsAre(0));
    EXPECT_TRUE(taken->waits);
    EXPECT_TRUE(made);
    EXPECT_FALSE(late);
    // Who pushes it again asks for what is new alone.
    const GrowingRow again(grows);
    cursor = {};
    const int64_t asked = fake_cuda::NumCalls("cuEventQuery");
    ASSERT_TRUE(again.Take(&cursor).ok());
    EXPECT_EQ(fake_cuda::NumCalls("cuEventQuery"), asked + 1);
    fake_cuda::Finish(0);
    EXPECT_TRUE(late);
  }
  fake_cuda::Free(memory);
}

// A device that is slow holds up nobody else's tensors.
TEST_F(GrowingRowTest, EachDeviceIsWaitedForByItself) {
  fake_cuda::SetNumDevices(2);
  char* const zero = fake_cuda::Alloc(8);
  char* const one = fake_cuda::Alloc(12, 1);
  const auto view = [](const char* name, const char* memory, size_t count) {
    return TensorView(name, absl::Span<const float>(
                                reinterpret_cast<const float*>(memory), count));
  };
  {
    TensorDevices devices;
    GrowingRow grows(&router, DType::kF32, &devices);
    fake_cuda::Hang(0, true);
    fake_cuda::Launch(0, [] {});
    ASSERT_TRUE(grows.Give({view("a", zero, 2)}).ok());
    ASSERT_TRUE(
        grows.Give({view("b", one, 3), TensorView("maybe", maybe)}).ok());
    EXPECT_EQ(grows.marks().size(), 2u);
    const auto taken = grows.Take(&cursor);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_THAT(taken->tensors, ElementsAre(2, 3));
    EXPECT_TRUE(taken->waits);
    fake_cuda::Hang(0, false);
    std::vector<int> rest;
    while (rest.empty()) rest = grows.Take(&cursor)->tensors;
    EXPECT_THAT(rest, ElementsAre(0));
    EXPECT_FALSE(grows.Take(&cursor)->waits);
  }
  fake_cuda::Free(one);
  fake_cuda::Free(zero);
  fake_cuda::SetNumDevices(1);
}

TEST_F(GrowingRowTest, MarkedAnewItWaitsForWhatCameSince) {
  char* const memory = fake_cuda::Alloc(8);
  {
    TensorDevices devices;
    GrowingRow grows(&router, DType::kF32, &devices);
    ASSERT_TRUE(grows
                    .Give({TensorView(
                        "a", absl::Span<const float>(
                                 reinterpret_cast<const float*>(memory), 2))})
                    .ok());
    EXPECT_THAT(grows.Take(&cursor)->tensors, ElementsAre(0));
    bool done = false;
    fake_cuda::Launch(0, [&done] { done = true; });
    GrowingRow again(grows);
    ASSERT_TRUE(again.MarkAnew().ok());
    cursor = {};
    std::vector<int> tensors;
    while (tensors.empty()) {
      EXPECT_FALSE(done);
      tensors = again.Take(&cursor)->tensors;
    }
    EXPECT_TRUE(done);
    fake_cuda::Fail("cuEventRecord", 700);
    EXPECT_TRUE(absl::IsInternal(again.MarkAnew()));
    fake_cuda::Fail("cuEventRecord", 0);
  }
  EXPECT_TRUE(GrowingRow(row).MarkAnew().ok()) << "nothing is on a device";
  fake_cuda::Free(memory);
}

TEST_F(GrowingRowTest, WhatTheDriverSaysOfADevicesWorkIsHeard) {
  char* const memory = fake_cuda::Alloc(8);
  {
    TensorDevices devices;
    GrowingRow grows(&router, DType::kF32, &devices);
    const TensorView a_there(
        "a",
        absl::Span<const float>(reinterpret_cast<const float*>(memory), 2));
    fake_cuda::Fail("cuEventRecord", 700);
    const absl::Status given = grows.Give({a_there});
    fake_cuda::Fail("cuEventRecord", 0);
    EXPECT_TRUE(absl::IsInternal(given)) << given;
    ASSERT_TRUE(grows.Give({a_there}).ok());
    fake_cuda::Fail("cuEventQuery", 700);
    const absl::Status taken = grows.Take(&cursor).status();
    fake_cuda::Fail("cuEventQuery", 0);
    EXPECT_TRUE(absl::IsInternal(taken)) << taken;
    EXPECT_THAT(std::string(taken.message()), HasSubstr("cuEventQuery"));
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
