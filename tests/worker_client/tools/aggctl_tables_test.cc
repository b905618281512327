#include "worker_client/tools/aggctl_tables.h"

#include <limits>
#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker_client/tools/aggctl_commands.h"

namespace agg {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

absl::Time Now() {
  return absl::FromCivil(absl::CivilSecond(2026, 11, 20, 8, 0, 30),
                         absl::UTCTimeZone());
}

v1::CombinationNames Names(const char* rule) {
  v1::CombinationNames names;
  names.set_rule(rule);
  names.set_scope("per_tensor");
  names.set_step_scale("none");
  return names;
}

void AddWorker(int rank, bool committed, double waited,
               v1::StatusReply* status) {
  v1::WorkerStatus* worker = status->add_workers();
  worker->set_rank(rank);
  worker->set_client("host" + std::to_string(rank) + ":99");
  worker->set_committed(committed);
  worker->set_attending(rank != 1);
  worker->set_lease_remaining_seconds(29.04);
  worker->set_waited_for_seconds(waited);
}

// Rank 0 has committed, 1 is waited for, 3 joins with the next round.
v1::StatusReply WaitingJob() {
  v1::StatusReply status;
  status.set_job("digits");
  status.set_epoch(7);
  status.set_phase("open");
  status.set_round(41);
  status.set_expected_workers(4);
  status.set_min_workers(4);
  status.set_below_floor_seconds(20.0);
  status.add_shards("127.0.0.1:50051");
  status.add_shards("127.0.0.1:50052");
  *status.mutable_combination() = Names("mean");
  *status.mutable_next_combination() = Names("adasum");
  AddWorker(0, true, 0.0, &status);
  AddWorker(1, false, 12.34, &status);
  AddWorker(3, false, 0.0, &status);
  status.mutable_workers(1)->set_late_rows(12);
  status.mutable_workers(1)->set_last_rows(40);
  status.mutable_workers(1)->set_lateness_seconds(3.21);
  status.add_missing_ranks(1);
  v1::RoundOutcome* last = status.mutable_last_outcome();
  last->set_kind(v1::RoundOutcome::APPLIED);
  last->set_round(40);
  last->add_ranks(0);
  last->add_ranks(1);
  last->set_learning_rate(0.05);
  last->set_gain(1.5);
  last->set_tau(60.25);
  last->set_orthogonality(0.75);
  return status;
}

TEST(AggctlTablesTest, StatusNamesWhoIsWaitedForAndSinceWhen) {
  EXPECT_EQ(StatusText(WaitingJob(), Now()),
            R"(job       digits: open, round 41, epoch 7
combined  rule mean, scope per_tensor, step scale none
          from round 42 on: rule adasum, scope per_tensor, step scale none
shards    127.0.0.1:50051 127.0.0.1:50052
workers   3 of 4 expected have joined, at least 4 needed; fewer since 08:00:10 UTC
waiting   for rank 1 (host1:99) for 12.3s, since 08:00:17 UTC; it is not connected
late      rank 1 (host1:99): 12 gradients came too late, usually 3.2s after the first of the round
last      round 40 applied: 2 gradients, learning rate 0.05, gain 1.5, tau 60.25, orthogonality 0.75
)");
}

TEST(AggctlTablesTest, StatusNamesWhoDecidesExternalRules) {
  v1::StatusReply status = WaitingJob();
  v1::RuleProcess* rule = status.add_rule_processes();
  rule->set_name("mine");
  rule->set_connected(true);
  rule->set_client("vm:7");
  rule->set_answers(40);
  rule->set_last_seconds(0.00125);
  rule->set_late_answers(2);
  rule = status.add_rule_processes();
  rule->set_name("other");
  rule->set_missing_answers(3);
  rule->set_last_missing("it is away");
  const std::string text = StatusText(status, Now());
  EXPECT_THAT(text, HasSubstr("rule      mine: process vm:7, 40 answers (the "
                              "last in 0.00125 s), 0 missing, 2 late\n"));
  EXPECT_THAT(text,
              HasSubstr("rule      other: no process has asked for rounds yet, "
                        "0 answers, 3 missing, 0 late; the last missing one: "
                        "it is away\n"));
}

TEST(AggctlTablesTest, StatusOfNothing) {
  v1::StatusReply status;
  status.set_job("j");
  status.set_phase("waiting_for_shards");
  status.set_message("waiting for all shards: shard 1 \x1b[2Jis away");
  *status.mutable_combination() = Names("mean");
  EXPECT_EQ(StatusText(status, Now()),
            R"(job       j: waiting_for_shards, round 0, epoch 0
combined  rule mean, scope per_tensor, step scale none
shards    
workers   0 of 0 expected have joined
message   waiting for all shards: shard 1 \x1b[2Jis away
)");
}

TEST(AggctlTablesTest, Workers) {
  v1::StatusReply status = WaitingJob();
  AddWorker(4, false, 0.0, &status);
  status.mutable_workers(0)->set_transports("shm");
  status.mutable_workers(1)->set_transports("unix tcp");
  status.add_missing_ranks(4);
  EXPECT_EQ(
      WorkersTable(status, Now()),
      R"(RANK  STATE       WAITED  SINCE     LEASE  CONNECTED  LATE  LAST  BEHIND  TRANSPORT  CLIENT
   0  committed        -  -         29.0s  yes           0     0     0ms  shm        host0:99
   1  waited for   12.3s  08:00:17  29.0s  no           12    40    3.2s  unix tcp   host1:99
   3  next round       -  -         29.0s  yes           0     0     0ms  -          host3:99
   4  computing        -  -         29.0s  yes           0     0     0ms  -          host4:99
)");
}

TEST(AggctlTablesTest, Tensors) {
  v1::ListTensorsReply reply;
  v1::ListTensorsReply::Entry* entry = reply.add_tensors();
  entry->mutable_tensor()->set_name("hidden/weights");
  entry->mutable_tensor()->add_shape(64);
  entry->mutable_tensor()->add_shape(32);
  entry->set_elements(2048);
  entry->set_slices(2);
  entry->add_shards(0);
  entry->add_shards(1);
  entry->set_orthogonality(0.98765);
  entry = reply.add_tensors();
  entry->mutable_tensor()->set_name("t\xc3\xa4u\n");
  entry->mutable_tensor()->set_optional(true);
  entry->mutable_tensor()->set_group("bias");
  entry->set_elements(1);
  entry->set_slices(1);
  entry->add_shards(1);
  entry->set_orthogonality(kNan);
  reply.set_elements(2049);
  EXPECT_EQ(TensorsTable(reply),
            "TENSOR            SHAPE    PARAMETERS  GROUP  SLICES  SHARDS  "
            "ORTHOGONALITY\n"
            "hidden/weights    [64,32]        2048  -           2  0,1     "
            "       0.9877\n"
            "t\xc3\xa4u\\n (optional)  []                1  bias        1  1 "
            "                  -\n"
            "2 tensors, 2049 parameters\n");
}

v1::ListRoundsReply TwoRounds() {
  v1::ListRoundsReply reply;
  for (int round : {40, 41}) {
    v1::RoundRecord* record = reply.add_rounds();
    record->set_ended_at_seconds(
        static_cast<double>(absl::ToUnixSeconds(Now())) + 4 * (round - 40));
    record->set_wait_seconds(0.0124);
    record->set_work_seconds(1.26);
    v1::RoundOutcome* outcome = record->mutable_outcome();
    outcome->set_epoch(7);
    outcome->set_round(round);
    outcome->set_kind(round == 40 ? v1::RoundOutcome::APPLIED
                                  : v1::RoundOutcome::SKIPPED);
    outcome->add_ranks(0);
    outcome->set_learning_rate(0.05);
    outcome->set_gain(1.0);
    outcome->set_tau(60.25);
    outcome->set_orthogonality(0.75);
    outcome->set_combined_norm(123456.0);
    outcome->set_loss(kNan);
    *outcome->mutable_combination() = Names("adasum");
  }
  reply.mutable_rounds(1)->mutable_outcome()->set_message("no row is finite");
  return reply;
}

TEST(AggctlTablesTest, RoundsAlignFromBatchToBatch) {
  const std::string expected =
      " ROUND  ENDED     OUTCOME  ROWS  RULE                   LR    GAIN     "
      "   TAU  ORTHOG       NORM       LOSS    WAIT    WORK  MESSAGE\n"
      "    40  08:00:30  applied     1  adasum               0.05       1     "
      " 60.25    0.75  1.235e+05          -    12ms    1.3s  -\n"
      "    41  08:00:34  skipped     1  adasum               0.05       1     "
      " 60.25    0.75  1.235e+05          -    12ms    1.3s  no row is "
      "finite\n";
  const v1::ListRoundsReply both = TwoRounds();
  EXPECT_EQ(RoundsTable(both, /*header=*/true), expected);
  std::string parts;
  for (int i : {0, 1}) {
    v1::ListRoundsReply one;
    *one.add_rounds() = both.rounds(i);
    parts += RoundsTable(one, /*header=*/i == 0);
  }
  EXPECT_EQ(parts, expected);
  EXPECT_EQ(RateText(both), "rate      0.25 rounds per second\n");
  EXPECT_EQ(RateText({}), "");
}

TEST(AggctlTablesTest, RoundsThatWentByUnseenAreCounted) {
  v1::ListRoundsRequest request;
  const v1::ListRoundsReply reply = TwoRounds();  // 40 and 41 of epoch 7
  EXPECT_EQ(NumMissed(request, reply), 0u);       // asked for all
  request.set_after_epoch(7);
  request.set_after_round(39);
  EXPECT_EQ(NumMissed(request, reply), 0u);
  request.set_after_round(9);
  EXPECT_EQ(NumMissed(request, reply), 30u);
  EXPECT_EQ(NumMissed(request, {}), 0u);
  request.set_after_epoch(6);
  EXPECT_EQ(NumMissed(request, reply), 0u);
  EXPECT_EQ(MissedText(0), "");
  EXPECT_EQ(MissedText(30),
            "... 30 rounds went by unseen: a shorter --interval shows more\n");
}

TEST(AggctlTablesTest, AnswersToChanges) {
  v1::SetRuleReply rule;
  *rule.mutable_before() = Names("mean");
  *rule.mutable_after() = Names("adasum");
  rule.set_first_round(9);
  EXPECT_EQ(SetRuleText(rule),
            "from round 9 on: rule adasum, scope per_tensor, step scale none\n"
            "until then:   rule mean, scope per_tensor, step scale none\n");
  v1::EvictWorkerReply evict;
  evict.set_client("host:1\r");
  EXPECT_EQ(EvictText(2, evict),
            "rank 2 (host:1\\x0d) is evicted; it had not committed the open "
            "round\n");
  evict.set_committed(true);
  EXPECT_EQ(EvictText(2, evict),
            "rank 2 (host:1\\x0d) is evicted; its committed gradient stays in "
            "the open round\n");
}

TEST(AggctlTablesTest, JsonIsOneLineWithEveryField) {
  v1::RoundRecord record;
  record.mutable_outcome()->set_epoch(1795171598729149);
  record.mutable_outcome()->set_loss(kNan);
  const std::string json = JsonOf(record);
  EXPECT_EQ(json.find('\n'), json.size() - 1);
  EXPECT_NE(json.find("\"epoch\":\"1795171598729149\""), std::string::npos);
  EXPECT_NE(json.find("\"loss\":\"NaN\""), std::string::npos);
  EXPECT_NE(json.find("\"wait_seconds\":0"), std::string::npos);
}

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
