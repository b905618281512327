#include "server/base/job_phase.h"

#include "gtest/gtest.h"

namespace agg {
namespace {

WorkerFacts Facts(bool committed, bool missing, double waited_seconds) {
  WorkerFacts facts;
  facts.committed = committed;
  facts.missing = missing;
  facts.waited_seconds = waited_seconds;
  return facts;
}

TEST(WorkerWordTest, InARound) {
  for (const char* phase : {"open", "closing"}) {
    EXPECT_STREQ(WorkerWord(phase, Facts(true, false, 0.0)), "committed");
    EXPECT_STREQ(WorkerWord(phase, Facts(false, true, 1.5)), "waited for");
    EXPECT_STREQ(WorkerWord(phase, Facts(false, true, 0.0)), "computing");
    EXPECT_STREQ(WorkerWord(phase, Facts(false, false, 0.0)), "next round");
  }
}

// What an ended epoch has left behind names no round that anybody waits for.
TEST(WorkerWordTest, WithoutARound) {
  for (const char* phase : {"waiting_for_shards", "unseeded", "finished",
                            "shard_lost", "draining", "another"}) {
    EXPECT_STREQ(WorkerWord(phase, Facts(true, false, 0.0)), "joined") << phase;
    EXPECT_STREQ(WorkerWord(phase, Facts(false, true, 9.0)), "joined") << phase;
  }
}

}  // namespace
}  // namespace agg
