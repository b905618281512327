#include "worker_client/tensor_devices.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "worker_client/tensor_view.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// First: nothing has loaded the fake driver yet.
TEST(ATensorDevicesTest, WithoutADriverAllIsTheHosts) {
  TensorDevices devices;
  const std::vector<float> values(4);
  EXPECT_FALSE(devices.has_driver());
  EXPECT_THAT(*devices.DevicesOf({TensorView(values)}),
              ElementsAre(TensorDevices::kHost));
  EXPECT_THAT(devices.met(), IsEmpty());
  // Who loads it later is noticed.
  char* const memory = fake_cuda::Alloc(16);
  const absl::Span<const float> there(reinterpret_cast<float*>(memory), 4);
  EXPECT_TRUE(devices.has_driver());
  EXPECT_THAT(*devices.DevicesOf({TensorView(there)}), ElementsAre(0));
  fake_cuda::Free(memory);
}

TEST(TensorDevicesTest, ViewsAreWhereTheirMemoryIs) {
  fake_cuda::SetNumDevices(2);
  char* const zero = fake_cuda::Alloc(64);
  char* const one = fake_cuda::Alloc(64, 1);
  {
    TensorDevices devices;
    const std::vector<float> values(4);
    const auto view = [](const void* data, int64_t count) {
      TensorView result;
      result.data = data;
      result.num_elements = count;
      return result;
    };
    const TensorPiece piece{0, 4, one};
    TensorView pieces = view(nullptr, 4);
    pieces.pieces = absl::MakeConstSpan(&piece, 1);
    EXPECT_THAT(*devices.DevicesOf({view(one + 16, 4), view(values.data(), 4),
                                    view(zero, 16), view(nullptr, 4),
                                    view(zero, 0), pieces}),
                ElementsAre(1, TensorDevices::kHost, 0, TensorDevices::kHost,
                            TensorDevices::kHost, 1));
    EXPECT_THAT(devices.met(), ElementsAre(0, 1));
  }
  fake_cuda::Free(one);
  fake_cuda::Free(zero);
  fake_cuda::SetNumDevices(1);
}

TEST(TensorDevicesTest, WhereTheyAreIsNotGuessedAfterAnError) {
  TensorDevices devices;
  const std::vector<float> values(4);
  fake_cuda::Fail("cuPointerGetAttribute", 2);
  const auto failed = devices.DevicesOf({TensorView(values)});
  fake_cuda::Fail("cuPointerGetAttribute", 0);
  EXPECT_EQ(failed.status(),
            absl::InternalError("CUDA driver: CUDA_ERROR_OUT_OF_MEMORY (2) "
                                "from cuPointerGetAttribute"));
  EXPECT_THAT(devices.met(), IsEmpty());
}

class CopiesTest : public testing::Test {
 protected:
  CopiesTest() {
    EXPECT_THAT(*devices_.DevicesOf({TensorView(absl::Span<const float>(
                    reinterpret_cast<float*>(memory_), 2))}),
                ElementsAre(0));
  }
  ~CopiesTest() override {
    fake_cuda::FailHostCopies(0);
    EXPECT_EQ(fake_cuda::NumCurrent(), 0);
    fake_cuda::Free(memory_);
  }

  char* const memory_ = fake_cuda::Alloc(8);
  TensorDevices devices_;
};

TEST_F(CopiesTest, NeitherWaitForTheDefaultStreamNorHoldItUp) {
  bool done = false;
  fake_cuda::Hang(0, true);
  fake_cuda::Launch(0, [&done] { done = true; });
  char here[8] = {};
  memory_[3] = 7;
  ASSERT_TRUE(devices_.CopyToHost(0, here, memory_, 8).ok());
  EXPECT_EQ(here[3], 7);
  here[3] = 9;
  ASSERT_TRUE(devices_.CopyToDevice(0, memory_, here, 8).ok());
  EXPECT_EQ(memory_[3], 9);
  EXPECT_FALSE(done);
  fake_cuda::Hang(0, false);
  const SharedMark mark = *devices_.Mark(0);
  while (!*mark->Reached()) continue;
  EXPECT_TRUE(done);
}

TEST_F(CopiesTest, AMarkIsReachedWithTheWorkBeforeIt) {
  bool early = false, late = false;
  fake_cuda::Launch(0, [&early] { early = true; });
  const auto marks = devices_.MarksOf({TensorDevices::kHost, 0, 0});
  fake_cuda::Launch(0, [&late] { late = true; });
  ASSERT_TRUE(marks.ok()) << marks.status();
  ASSERT_EQ(marks->size(), 1u);
  const SharedMark& mark = marks->at(0);
  EXPECT_FALSE(*mark->Reached());
  EXPECT_FALSE(early);
  while (!*mark->Reached()) continue;
  EXPECT_TRUE(early);
  EXPECT_FALSE(late);
  const int64_t asked = fake_cuda::NumCalls("cuEventQuery");
  EXPECT_TRUE(*mark->Reached());
  EXPECT_EQ(fake_cuda::NumCalls("cuEventQuery"), asked);
  fake_cuda::Finish(0);
  EXPECT_TRUE(late);
}

TEST_F(CopiesTest, SayWhatTheDriverSays) {
  char here[8] = {};
  fake_cuda::FailHostCopies(2);
  EXPECT_EQ(devices_.CopyToHost(0, here, memory_, 8),
            absl::InternalError("CUDA driver: CUDA_ERROR_OUT_OF_MEMORY (2) "
                                "from cuMemcpyDtoHAsync"));
  EXPECT_EQ(devices_.CopyToDevice(0, memory_, here, 8),
            absl::InternalError("CUDA driver: CUDA_ERROR_OUT_OF_MEMORY (2) "
                                "from cuMemcpyHtoDAsync"));
  fake_cuda::FailHostCopies(0);
  EXPECT_TRUE(devices_.CopyToHost(0, here, memory_, 8).ok());
}

TEST(TensorDevicesTest, PinnedMemoryIsKept) {
  const int64_t live = fake_cuda::NumLive();
  char* const memory = fake_cuda::Alloc(8);
  {
    TensorDevices devices;
    ASSERT_TRUE(devices
                    .DevicesOf({TensorView(absl::Span<const float>(
                        reinterpret_cast<float*>(memory), 2))})
                    .ok());
    const int64_t made = fake_cuda::NumCalls("cuMemAllocHost_v2");
    for (int i = 0; i < 3; ++i) {
      PinnedCopy copy(&devices);
      ASSERT_TRUE(copy.Take(0, memory, 8).ok());
    }
    EXPECT_EQ(fake_cuda::NumCalls("cuMemAllocHost_v2"), made + 1);
  }
  fake_cuda::Free(memory);
  EXPECT_EQ(fake_cuda::NumLive(), live);
}

TEST(MarkPausesTest, AreAPartOfWhatWasWaited) {
  MarkPauses pauses;
  absl::Time now = absl::FromUnixSeconds(1000);
  EXPECT_EQ(pauses.Next(now), MarkPauses::kShortest);
  EXPECT_EQ(pauses.Next(now + absl::Microseconds(800)), absl::Microseconds(50));
  EXPECT_EQ(pauses.Next(now + absl::Hours(1)), MarkPauses::kLongest);
  pauses.Reset();
  EXPECT_EQ(pauses.Next(now + absl::Hours(1)), MarkPauses::kShortest);
  // The system's time may go back.
  EXPECT_EQ(pauses.Next(now), MarkPauses::kShortest);
}

class AwaitMarksTest : public testing::Test {
 protected:
  AwaitMarksTest() {
    const absl::Span<const float> there(reinterpret_cast<float*>(memory_), 2);
    EXPECT_TRUE(devices_.DevicesOf({TensorView(there)}).ok());
    fake_cuda::Hang(0, true);
    fake_cuda::Launch(0, [] {});
    marks_.push_back(*devices_.Mark(0));
  }
  ~AwaitMarksTest() override {
    fake_cuda::Hang(0, false);
    fake_cuda::Free(memory_);
  }
  absl::Status Await(absl::Time deadline = absl::InfiniteFuture()) {
    return AwaitMarks(marks_, "Pull", deadline, [this] { return reason_; });
  }

  char* const memory_ = fake_cuda::Alloc(8);
  TensorDevices devices_;
  std::vector<SharedMark> marks_;
  absl::Status reason_;
};

TEST_F(AwaitMarksTest, EndsWithTheMarks) {
  fake_cuda::Hang(0, false);
  EXPECT_TRUE(Await().ok());
  // What is reached needs no time.
  EXPECT_TRUE(Await(absl::InfinitePast()).ok());
  marks_.clear();
  EXPECT_TRUE(Await(absl::InfinitePast()).ok());
}

TEST_F(AwaitMarksTest, EndsWithAReason) {
  reason_ = absl::AbortedError("another epoch");
  EXPECT_EQ(Await(), reason_);
  marks_.clear();
  EXPECT_EQ(Await(), reason_) << "what was cancelled does not begin";
}

TEST_F(AwaitMarksTest, EndsAtTheDeadline) {
  EXPECT_EQ(Await(absl::Now()), MarkTimeout("Pull"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(MarkTimeout("Pull")));
}

TEST_F(AwaitMarksTest, EndsWithTheDriversError) {
  fake_cuda::Fail("cuEventQuery", 2);
  const absl::Status status = Await();
  fake_cuda::Fail("cuEventQuery", 0);
  EXPECT_TRUE(absl::IsInternal(status)) << status;
}

}  // namespace
}  // namespace agg
