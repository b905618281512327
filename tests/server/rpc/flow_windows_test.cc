#include "gtest/gtest.h"
#include "server/rpc/transport_settings.h"

namespace agg {
namespace {

TEST(FlowWindowsTest, GrowWhereOtherHostsMayCome) {
  for (const char* const listen :
       {"0.0.0.0:50051", "10.231.7.1:0", "[::]:50051", "[fd00::1]:50051",
        "agg-0.agg.agg-server.svc:50051"}) {
    EXPECT_TRUE(WindowsGrow(/*pipelined=*/false, listen)) << listen;
  }
  for (const char* const listen :
       {"127.0.0.1:0", "127.0.0.2:50051", "localhost:50051", "[::1]:50051"}) {
    EXPECT_FALSE(WindowsGrow(/*pipelined=*/false, listen)) << listen;
  }
}

TEST(FlowWindowsTest, GrowInAPipelinedJob) {
  EXPECT_TRUE(WindowsGrow(/*pipelined=*/true, "127.0.0.1:50051"));
}

}  // namespace
}  // namespace agg
