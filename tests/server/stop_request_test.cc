#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "server/server_main.h"

namespace agg {
namespace {

TEST(StopRequestTest, TheFirstReasonCounts) {
  StopRequest stop;
  stop.Ask("drain request");
  stop.Ask("signal 15");
  EXPECT_EQ(stop.Wait(), "drain request");
  EXPECT_EQ(stop.Wait(), "drain request");
}

TEST(StopRequestTest, IsWaitedFor) {
  StopRequest stop;
  std::string reason;
  std::thread waiting([&] { reason = stop.Wait(); });
  stop.Ask("signal 15");
  waiting.join();
  EXPECT_EQ(reason, "signal 15");
}

}  // namespace
}  // namespace agg
