#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/kernels/device_memory/fake_cuda.h"
#include "worker_client/tensor_devices.h"
#include "worker_client/tensor_view.h"

namespace agg {
namespace {

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
