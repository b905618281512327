#include "gtest/gtest.h"
#include "worker_client/tools/aggctl_commands.h"

namespace agg {
namespace {

TEST(AuditTableTest, OneRowPerEventAndNothingThatATerminalObeys) {
  v1::ListAuditReply reply;
  v1::AuditRecord* join = reply.add_records();
  join->set_time_seconds(1763800000);
  join->set_action("join");
  join->set_who("trainer");
  join->set_from("ipv4:127.0.0.1:5");
  join->set_times(1);
  join->set_outcome("OK");
  v1::AuditRecord* denial = reply.add_records();
  *denial = *join;
  denial->set_action("denial");
  denial->set_who("");
  denial->set_rank(-1);
  denial->set_times(7);
  denial->set_detail("\x1b[2Jx");
  EXPECT_EQ(
      AuditTable(reply),
      "TIME      ACTION  WHO      FROM              RANK  TIMES  WHAT      "
      "OUTCOME\n"
      "08:26:40  join    trainer  ipv4:127.0.0.1:5     0      1  -         "
      "OK\n"
      "08:26:40  denial  -        ipv4:127.0.0.1:5     -      7  \\x1b[2Jx  "
      "OK\n");
}

}  // namespace
}  // namespace agg
