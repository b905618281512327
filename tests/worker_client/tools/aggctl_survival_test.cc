#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker_client/tools/aggctl_tables.h"

namespace agg {
namespace {

absl::Time Now() {
  return absl::FromCivil(absl::CivilSecond(2026, 11, 20, 8, 0, 30),
                         absl::UTCTimeZone());
}

std::string Text(const v1::StatusReply& status) {
  return SurvivalText(status, Now());
}

TEST(AggctlSurvivalTest, NothingWhereNothingIsConfigured) {
  EXPECT_EQ(Text(v1::StatusReply()), "");
}

TEST(AggctlSurvivalTest, WhatARecoveryWaitsFor) {
  v1::StatusReply status;
  status.set_recovering("shard 1 (h:1): connection \x1b[2Jrefused");
  EXPECT_EQ(Text(status),
            "recovery  shard 1 (h:1): connection \\x1b[2Jrefused\n");
  status.clear_recovering();
  status.set_replicated(true);
  EXPECT_EQ(Text(status), "copies    two of each part\n");
}

TEST(AggctlSurvivalTest, Checkpoints) {
  v1::StatusReply status;
  v1::CheckpointStatus* checkpoint = status.mutable_checkpoint();
  EXPECT_EQ(Text(status), "saved     nothing yet\n");
  checkpoint->set_writing(true);
  EXPECT_EQ(Text(status), "saved     nothing yet; one is being written\n");
  checkpoint->set_writing(false);
  checkpoint->set_made(5);
  checkpoint->set_version(120);
  checkpoint->set_age_seconds(12.34);
  EXPECT_EQ(Text(status),
            "saved     version 120, 12.3s ago, at 08:00:17 UTC\n");
  checkpoint->set_restored_made(4);
  checkpoint->set_restored_version(90);
  checkpoint->set_num_failed(2);
  checkpoint->set_last_error("write /c/part-0: no space\n");
  EXPECT_EQ(Text(status),
            "saved     version 120, 12.3s ago, at 08:00:17 UTC; the job went "
            "on from version 90; 2 failed; the last try failed: write "
            "/c/part-0: no space\\n\n");
}

TEST(AggctlSurvivalTest, WhatWasMadeOfCheckpoints) {
  v1::StatusReply status;
  status.mutable_checkpoint()->set_restore("no shard sees \x1b one");
  EXPECT_EQ(Text(status),
            "saved     nothing yet\nrestore   no shard sees \\x1b one\n");
  // What is waited for now is what counts.
  status.set_recovering("the job waits");
  EXPECT_EQ(Text(status), "recovery  the job waits\nsaved     nothing yet\n");
}

TEST(AggctlSurvivalTest, ARestore) {
  v1::RestoreReply reply;
  EXPECT_EQ(RestoreText(reply), "no shard sees a sealed checkpoint\n");
  reply.set_text("the job waits");
  v1::RestoreReply::Found* const found = reply.add_found();
  found->set_made(17);
  found->set_version(45);
  found->set_missing("shard 1 (/c\n) lacks part 1 of 2");
  reply.add_found()->set_made(16);
  EXPECT_EQ(RestoreText(reply),
            "the job waits\n"
            "version 45 (17-45): shard 1 (/c\\n) lacks part 1 of 2\n"
            "version 0 (16-0): complete\n");
}

TEST(AggctlSurvivalTest, AResumedJob) {
  v1::ResumeReply reply;
  reply.set_version(7);
  reply.set_ended("the last worker has left");
  EXPECT_EQ(ResumeText(reply, /*dry_run=*/true),
            "the job would go on from version 7; it has finished: the "
            "last worker has left\n");
  EXPECT_EQ(ResumeText(reply, /*dry_run=*/false),
            "the job goes on from version 7; it had finished: the last worker "
            "has left\n");
}

TEST(AggctlSurvivalTest, ATakenCheckpoint) {
  v1::TakeCheckpointReply reply;
  reply.set_version(120);
  reply.set_made(1763800000000000);
  reply.set_bytes(57720);
  EXPECT_EQ(CheckpointText(reply),
            "version 120 is saved: 57720 bytes, in the folder "
            "1763800000000000-120\n");
}

}  // namespace
}  // namespace agg
