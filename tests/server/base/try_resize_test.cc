#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "server/base/process_memory.h"

namespace agg {
namespace {

TEST(TryResizeTest, FillsWithZerosAndKeepsWhatIsThere) {
  std::vector<float> values = {1.0f};
  ASSERT_EQ(TryResize(3, &values), absl::OkStatus());
  EXPECT_EQ(values, (std::vector<float>{1.0f, 0.0f, 0.0f}));
}

TEST(TryResizeTest, MemoryThatIsNotThereIsAnError) {
  std::vector<float> values = {1.0f};
  // More than an address has bits for, and more than a vector can have.
  for (const int64_t num_values : {int64_t{1} << 50, int64_t{1} << 62}) {
    EXPECT_TRUE(absl::IsResourceExhausted(TryResize(num_values, &values)));
  }
  EXPECT_EQ(values, std::vector<float>{1.0f});
}

}  // namespace
}  // namespace agg
