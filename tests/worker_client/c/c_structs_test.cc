// Options of callers of this release and of older ones.
#include "worker_client/c/c_structs.h"

#include <cstddef>

#include "absl/types/optional.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

TEST(OptionsOfTest, DefaultsAreTheClients) {
  const agg_options defaults = DefaultOptions();
  const auto options = OptionsOf(&defaults);
  ASSERT_TRUE(options.ok()) << options.status();
  const ClientOptions expected;
  EXPECT_EQ(options->shared_memory, expected.shared_memory);
  EXPECT_EQ(options->local_sockets, expected.local_sockets);
  EXPECT_EQ(options->error_feedback, expected.error_feedback);
  EXPECT_EQ(options->round_timeout, expected.round_timeout);
  EXPECT_EQ(options->copy_threads, expected.copy_threads);
  EXPECT_EQ(options->cuda_rows, expected.cuda_rows);
}

TEST(OptionsOfTest, SharedMemoryAndErrorFeedbackAreTaken) {
  agg_options from = DefaultOptions();
  from.shared_memory = 0;
  from.error_feedback = 1;
  from.cuda_rows = 0;
  auto options = OptionsOf(&from);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_FALSE(options->shared_memory);
  EXPECT_FALSE(options->cuda_rows);
  EXPECT_EQ(options->error_feedback, absl::optional<bool>(true));
  from.error_feedback = 0;
  options = OptionsOf(&from);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->error_feedback, absl::optional<bool>(false));
}

// What lies behind its struct is not read.
TEST(OptionsOfTest, AnOlderCallerHasTheDefaults) {
  agg_options from = DefaultOptions();
  from.shared_memory = 0;
  from.error_feedback = 99;
  from.size = offsetof(agg_options, shared_memory);
  const auto options = OptionsOf(&from);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->shared_memory);
  EXPECT_EQ(options->error_feedback, absl::nullopt);
}

}  // namespace
}  // namespace agg
