#include "kernels/backend_factory.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace agg {
namespace {

using testing::HasSubstr;

TEST(BackendFactoryTest, MakesEveryBackendThatItNames) {
  EXPECT_THAT(AvailableBackends(), testing::Contains("cpu"));
  BackendOptions options;
  options.num_threads = 3;
  const auto backend = MakeBackend("cpu", options);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->name(), "cpu");
  EXPECT_THAT((*backend)->description(), HasSubstr("3 threads"));
}

TEST(BackendFactoryTest, ZeroThreadsTakesTheAvailableCpus) {
  const auto backend = MakeBackend("cpu", BackendOptions());
  ASSERT_TRUE(backend.ok());
  EXPECT_THAT((*backend)->description(), testing::Not(HasSubstr(" 0 threads")));
}

TEST(BackendFactoryTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const auto backend = MakeBackend("abacus", BackendOptions());
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(backend.status().message()), HasSubstr("abacus"));
  EXPECT_THAT(std::string(backend.status().message()), HasSubstr("cpu"));
}

}  // namespace
}  // namespace agg
