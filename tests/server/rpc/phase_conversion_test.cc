#include "server/rpc/phase_conversion.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control.pb.h"
#include "server/coordinator/coordinator_types.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"
#include "server/rpc/job_conversion.h"

namespace agg {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ShardInventory Full() {
  ShardInventory inventory;
  inventory.member_epoch = 21;
  inventory.has_manifest = true;
  inventory.copies = {{1, {20, 7}, 21, true}, {0, {20, 6}, 0, false}};
  inventory.members = {{0, 31, 2, "host:1"}, {3, 32, 5, ""}};
  inventory.ended_sessions = {28, 29};
  inventory.highest_session = 32;
  inventory.facts.epoch = 20;
  inventory.facts.number = 4;
  inventory.facts.text = "learning_rate 0.5";
  inventory.checkpoints.folder = "/ckpt/job";
  inventory.checkpoints.states = {{{20, 3}, 4, {0, 2}, true},
                                  {{19, 9}, 0, {}, false}};
  inventory.checkpoints.begun_anew = 19;
  inventory.other_checkpoints.folder = "/ckpt/old";
  inventory.other_checkpoints.error = "cannot list /ckpt/old";
  return inventory;
}

v1::AttachReply Reply(const ShardInventory& inventory) {
  v1::AttachReply reply;
  AddInventory(inventory, &reply);
  return reply;
}

TEST(InventoryConversionTest, NothingIsLost) {
  v1::AttachReply reply = Reply(Full());
  reply.set_life(99);
  reply.set_local_socket("agg-63");
  reply.set_region_socket("agg-regions-63");
  const absl::StatusOr<ShardInventory> back = FromProto(reply, 2);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->life, 99u);
  EXPECT_EQ(back->local_socket, "agg-63");
  EXPECT_EQ(back->region_socket, "agg-regions-63");
  EXPECT_EQ(back->member_epoch, 21u);
  EXPECT_TRUE(back->has_manifest);
  ASSERT_EQ(back->copies.size(), 2u);
  EXPECT_EQ(back->copies[0].part, 1);
  EXPECT_EQ(back->copies[0].id, (VersionId{20, 7}));
  EXPECT_EQ(back->copies[0].prepared_by, 21u);
  EXPECT_TRUE(back->copies[0].whole);
  EXPECT_EQ(back->copies[1].id, (VersionId{20, 6}));
  EXPECT_FALSE(back->copies[1].whole);
  ASSERT_EQ(back->members.size(), 2u);
  EXPECT_EQ(back->members[0].client, "host:1");
  EXPECT_EQ(back->members[1].rank, 3);
  EXPECT_EQ(back->members[1].session, 32u);
  EXPECT_EQ(back->members[1].first_round, 5u);
  EXPECT_THAT(back->ended_sessions, ElementsAre(28u, 29u));
  EXPECT_EQ(back->highest_session, 32u);
  EXPECT_EQ(back->facts.epoch, 20u);
  EXPECT_EQ(back->facts.number, 4u);
  EXPECT_EQ(back->facts.text, "learning_rate 0.5");
  EXPECT_EQ(back->checkpoints.folder, "/ckpt/job");
  EXPECT_EQ(back->checkpoints.error, "");
  EXPECT_EQ(back->checkpoints.begun_anew, 19u);
  EXPECT_EQ(back->other_checkpoints.folder, "/ckpt/old");
  EXPECT_EQ(back->other_checkpoints.error, "cannot list /ckpt/old");
  ASSERT_EQ(back->checkpoints.states.size(), 2u);
  EXPECT_EQ(back->checkpoints.states[0].id, (CheckpointId{20, 3}));
  EXPECT_EQ(back->checkpoints.states[0].num_shards, 4);
  EXPECT_THAT(back->checkpoints.states[0].parts, ElementsAre(0, 2));
  EXPECT_TRUE(back->checkpoints.states[0].manifest);
  EXPECT_EQ(back->checkpoints.states[1].id, (CheckpointId{19, 9}));
  EXPECT_TRUE(back->checkpoints.states[1].parts.empty());
}

TEST(InventoryConversionTest, ASocketThatWorkersCouldNotUseIsNone) {
  v1::AttachReply reply = Reply(Full());
  for (const std::string& name : {std::string(65, 'a'), std::string("a/b")}) {
    reply.set_local_socket(name);
    reply.set_region_socket(name);
    const absl::StatusOr<ShardInventory> back = FromProto(reply, 2);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->local_socket, "");
    EXPECT_EQ(back->region_socket, "");
  }
}

TEST(InventoryConversionTest, AnEmptyReplyIsAnEmptyShard) {
  const absl::StatusOr<ShardInventory> back = FromProto(v1::AttachReply(), 2);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->copies.empty());
  EXPECT_FALSE(back->has_manifest);
}

template <typename Change>
std::string Refusal(const Change& change) {
  v1::AttachReply reply = Reply(Full());
  change(&reply);
  const absl::StatusOr<ShardInventory> back = FromProto(reply, 2);
  EXPECT_EQ(back.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(back.status().message());
}

TEST(InventoryConversionTest, AReportBringsRowsAndAnOffer) {
  CompleteRow row{7, 3, 2};
  row.ago = absl::Microseconds(1234);
  CloseOffer offer;
  offer.round = 3;
  offer.rows = {{0, 7, 2}, {1, 8, 0}};
  offer.result.grams = GramList({{5, {1.5, 0.25, 4.0}, {}}});
  offer.result.row_crc32c = {11, 12};
  offer.result.seconds = 0.5;
  v1::AttachReply report = ReportOf({row}, &offer);
  ASSERT_EQ(CompleteRowsOf(report).size(), 1u);
  EXPECT_EQ(CompleteRowsOf(report)[0].ago, row.ago);
  const auto back = FromProto(report.offer());
  ASSERT_NE(back, nullptr);
  EXPECT_EQ(back->round, 3u);
  EXPECT_EQ(back->rows, offer.rows);
  ASSERT_EQ(back->result.grams.size(), 1u);
  EXPECT_EQ(back->result.grams[0].slice, 5);
  EXPECT_EQ(back->result.grams[0].hi, offer.result.grams[0].hi);
  EXPECT_EQ(back->result.row_crc32c, offer.result.row_crc32c);
  EXPECT_EQ(back->result.seconds, 0.5);
  EXPECT_FALSE(ReportOf({row}).has_offer());
  // What no shard sends is no offer.
  report.mutable_offer()->add_row_crc32c(13);
  EXPECT_EQ(FromProto(report.offer()), nullptr);
  for (int i = 0; i < 511; ++i) {
    report.mutable_offer()->add_rows();
    report.mutable_offer()->add_row_crc32c(0);
  }
  EXPECT_EQ(FromProto(report.offer()), nullptr);
  report.mutable_complete_rows(0)->set_microseconds_ago(uint64_t{1} << 60);
  EXPECT_EQ(CompleteRowsOf(report)[0].ago, absl::Minutes(1));
}

TEST(InventoryConversionTest, WhatAShardCannotHoldIsRefusedByField) {
  EXPECT_THAT(Refusal([](auto* r) { r->mutable_copies(0)->set_part(2); }),
              HasSubstr("attach_reply.copies.part is 2; allowed: 0 to 1"));
  EXPECT_THAT(Refusal([](auto* r) { r->add_copies(); }),
              HasSubstr("attach_reply.copies is 3; allowed: at most 2"));
  EXPECT_THAT(Refusal([](auto* r) { r->mutable_members(0)->set_rank(-1); }),
              HasSubstr("attach_reply.members.rank is -1; allowed: 0 to 511"));
  EXPECT_THAT(Refusal([](auto* r) { r->mutable_members(0)->set_session(0); }),
              HasSubstr("attach_reply.members.session is 0"));
  EXPECT_THAT(Refusal([](auto* r) {
                r->mutable_members(0)->set_client(std::string(513, 'x'));
              }),
              HasSubstr("attach_reply.members.client is 513 bytes"));
  EXPECT_THAT(Refusal([](auto* r) {
                for (int i = 0; i < 65536; ++i) r->add_ended_sessions(1);
              }),
              HasSubstr("attach_reply.ended_sessions is 65538"));
  EXPECT_THAT(
      Refusal([](auto* r) { r->mutable_checkpoints(0)->set_parts(0, 4); }),
      HasSubstr("attach_reply.checkpoints.parts is 4; allowed: 0 to"));
  EXPECT_THAT(Refusal([](auto* r) { r->mutable_checkpoints(0)->add_parts(2); }),
              HasSubstr("attach_reply.checkpoints.parts is 2; allowed: above"));
  EXPECT_THAT(
      Refusal([](auto* r) { r->mutable_checkpoints(0)->set_num_shards(1025); }),
      HasSubstr("attach_reply.checkpoints.num_shards is 1025"));
  EXPECT_THAT(Refusal([](auto* r) {
                r->mutable_facts()->set_text(std::string(1048577, 'x'));
              }),
              HasSubstr("facts.text is 1048577 bytes"));
}

// People may keep many, and the shard must be attached all the same.
TEST(InventoryConversionTest, TheNewestCheckpointsAreReported) {
  ShardInventory inventory;
  for (uint64_t version = 0; version < 2000; ++version) {
    inventory.checkpoints.states.push_back({{5, version}, 1, {0}, true});
  }
  const absl::StatusOr<ShardInventory> back = FromProto(Reply(inventory), 2);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->checkpoints.states.size(), 1024u);
  EXPECT_EQ(back->checkpoints.states[0].id, (CheckpointId{5, 1999}));
  EXPECT_EQ(back->checkpoints.states[1023].id, (CheckpointId{5, 976}));
}

// Phases, cut into messages and put together again.

// What the other side makes of the messages; their number goes to
// *num_messages.
absl::StatusOr<Phase> RoundTrip(const Phase& phase,
                                int64_t max_bytes = kMaxPhaseMessageBytes,
                                int* num_messages = nullptr) {
  PhaseRequests requests(phase, max_bytes);
  v1::PhaseRequest request;
  EXPECT_TRUE(requests.Next(&request));
  PhaseAssembly back;
  absl::Status status = back.Add(request);
  int count = 1;
  while (status.ok() && request.more()) {
    EXPECT_TRUE(requests.Next(&request));
    EXPECT_LE(static_cast<int64_t>(request.ByteSizeLong()), max_bytes + 100);
    status = back.Add(request);
    ++count;
  }
  EXPECT_FALSE(requests.Next(&request));
  if (num_messages != nullptr) *num_messages = count;
  if (!status.ok()) return status;
  return back.Take();
}

Phase PhaseOf(PhaseKind kind) {
  Phase phase;
  phase.kind = kind;
  phase.epoch = 1;
  phase.round = 2;
  return phase;
}

// `n` bytes, no two neighbours the same.
std::string Text(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text.push_back(static_cast<char>(i % 251));
  return text;
}

TEST(PhaseAssemblyTest, AnUpdateBringsTheReplicasStepAndTheRecord) {
  Phase phase = PhaseOf(PhaseKind::kUpdate);
  phase.step.coefficients = {0.5, 0.25, 0.125};
  phase.replica_step.learning_rate = 0.75;
  phase.replica_step.group_rates = {0.5, 0.25};
  phase.replica_step.renews_state = true;
  phase.replica_step.step = 4;
  for (int t = 0; t < 40; ++t) {
    phase.replica_step.tensors.push_back(t);
    phase.replica_step.trust.push_back(static_cast<float>(t) / 2.0f);
  }
  phase.record = std::make_shared<const std::string>(Text(1001));
  for (const int64_t max_bytes : {8, 64, 1 << 20}) {
    SCOPED_TRACE(max_bytes);
    int count = 0;
    const absl::StatusOr<Phase> back = RoundTrip(phase, max_bytes, &count);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(count > 1, max_bytes < 1000);
    EXPECT_FALSE(back->publish.unchanged);
    EXPECT_EQ(back->step.coefficients, phase.step.coefficients);
    EXPECT_EQ(back->replica_step.learning_rate, 0.75);
    EXPECT_EQ(back->replica_step.group_rates, phase.replica_step.group_rates);
    EXPECT_TRUE(back->replica_step.renews_state);
    EXPECT_EQ(back->replica_step.step, 4);
    EXPECT_EQ(back->replica_step.tensors, phase.replica_step.tensors);
    EXPECT_EQ(back->replica_step.trust, phase.replica_step.trust);
    ASSERT_NE(back->record, nullptr);
    EXPECT_EQ(*back->record, *phase.record);
  }
}

TEST(PhaseAssemblyTest, ASkippedRoundIsPreparedToo) {
  Phase phase = PhaseOf(PhaseKind::kUpdate);
  phase.step.step = 4;
  phase.publish.unchanged = true;
  const absl::StatusOr<Phase> back = RoundTrip(phase);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->publish.unchanged);
  EXPECT_EQ(back->step.step, 4);
  EXPECT_EQ(back->record, nullptr);
}

TEST(PhaseAssemblyTest, AnUpdateMayPublish) {
  Phase phase = PhaseOf(PhaseKind::kUpdate);
  phase.publish.version = 3;
  EXPECT_FALSE(RoundTrip(phase)->publishes);
  phase.publishes = true;
  const absl::StatusOr<Phase> back = RoundTrip(phase);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->publishes);
  EXPECT_EQ(back->publish.version, 3u);
}

TEST(PhaseAssemblyTest, OfferedRowsCloseTheRoundFirst) {
  for (const PhaseKind kind :
       {PhaseKind::kUpdate, PhaseKind::kNorms, PhaseKind::kCompensatedGram}) {
    Phase phase;
    phase.kind = kind;
    phase.epoch = 5;
    phase.rows = {{0, 10, 0}, {3, 13, 2}};
    v1::PhaseRequest request;
    PhaseRequests requests(phase);
    ASSERT_TRUE(requests.Next(&request));
    PhaseAssembly assembly;
    ASSERT_EQ(assembly.Add(request), absl::OkStatus());
    EXPECT_EQ(assembly.Take().rows, phase.rows) << PhaseName(kind);
  }
  v1::PhaseRequest many;
  many.mutable_update();
  for (int i = 0; i < 513; ++i) many.add_offered_rows();
  EXPECT_EQ(PhaseAssembly().Add(many),
            absl::ResourceExhaustedError(
                "update has 513 rows; allowed: 512 at most"));
}

TEST(PhaseAssemblyTest, ASeedThatIsLoaded) {
  Phase phase = PhaseOf(PhaseKind::kLoadSeed);
  phase.publish.seed = true;
  phase.publish.seed_session = 77;
  phase.publish.seed_attempt = 3;
  const absl::StatusOr<Phase> back = RoundTrip(phase);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->kind, PhaseKind::kLoadSeed);
  EXPECT_TRUE(back->publish.seed);
  EXPECT_EQ(back->publish.seed_session, 77u);
  EXPECT_EQ(back->publish.seed_attempt, 3u);
}

TEST(PhaseAssemblyTest, ARecoveryWithACheckpointOfManyMessages) {
  Phase phase = PhaseOf(PhaseKind::kRecover);
  phase.recover.target = {5, 6};
  phase.recover.unseeded = true;
  phase.recover.home = CopyAction::kLoad;
  phase.recover.replica = CopyAction::kStep;
  phase.recover.facts.epoch = 5;
  phase.recover.facts.number = 2;
  phase.recover.facts.text = "finished";
  phase.checkpoint = Text(1003);
  int count = 0;
  const absl::StatusOr<Phase> back = RoundTrip(phase, 100, &count);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(count, 11);
  EXPECT_EQ(back->kind, PhaseKind::kRecover);
  EXPECT_EQ(back->recover.target, (VersionId{5, 6}));
  EXPECT_TRUE(back->recover.unseeded);
  EXPECT_EQ(back->recover.home, CopyAction::kLoad);
  EXPECT_EQ(back->recover.replica, CopyAction::kStep);
  EXPECT_EQ(back->recover.facts.epoch, 5u);
  EXPECT_EQ(back->recover.facts.number, 2u);
  EXPECT_EQ(back->recover.facts.text, "finished");
  EXPECT_EQ(back->checkpoint, phase.checkpoint);
}

TEST(PhaseAssemblyTest, EachActionArrives) {
  for (const CopyAction action :
       {CopyAction::kVoid, CopyAction::kKeep, CopyAction::kStep}) {
    Phase phase = PhaseOf(PhaseKind::kRecover);
    phase.recover.home = phase.recover.replica = action;
    const absl::StatusOr<Phase> back = RoundTrip(phase);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->recover.home, action);
    EXPECT_EQ(back->recover.replica, action);
  }
}

TEST(PhaseAssemblyTest, AnActionThatIsNotKnownIsRefused) {
  v1::PhaseRequest request;
  request.mutable_recover()->set_replica(v1::PhaseRequest::Recover::LOAD);
  absl::Status status = PhaseAssembly().Add(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("recover.replica is 3; allowed: VOID (0)"));
  request.mutable_recover()->set_home(
      static_cast<v1::PhaseRequest::Recover::Action>(9));
  status = PhaseAssembly().Add(request);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("recover.home is 9; allowed: VOID (0)"));
}

TEST(PhaseAssemblyTest, FactsAreBounded) {
  v1::PhaseRequest request;
  request.mutable_recover()->mutable_facts()->set_text(
      std::string((1 << 20) + 1, 'x'));
  const absl::Status status = PhaseAssembly().Add(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("facts.text is 1048577 bytes"));
}

TEST(PhaseAssemblyTest, PhasesOfAVersion) {
  for (const PhaseKind kind :
       {PhaseKind::kFetch, PhaseKind::kOpen, PhaseKind::kCapture}) {
    Phase phase = PhaseOf(kind);
    phase.id = {8, 9};
    const absl::StatusOr<Phase> back = RoundTrip(phase);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->kind, kind);
    EXPECT_EQ(back->id, (VersionId{8, 9}));
  }
  const absl::StatusOr<Phase> progress =
      RoundTrip(PhaseOf(PhaseKind::kCheckpointProgress));
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_EQ(progress->kind, PhaseKind::kCheckpointProgress);
}

TEST(PhaseAssemblyTest, ASealOfManyMessages) {
  Phase phase = PhaseOf(PhaseKind::kSeal);
  phase.checkpoint = Text(8 << 20);
  phase.keep = 3;
  int count = 0;
  absl::StatusOr<Phase> back = RoundTrip(phase, kMaxPhaseMessageBytes, &count);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(count, 3);
  EXPECT_EQ(back->kind, PhaseKind::kSeal);
  EXPECT_EQ(back->keep, 3);
  EXPECT_EQ(back->checkpoint, phase.checkpoint);
  phase.checkpoint.clear();
  phase.begins_anew = true;
  phase.line = 77;
  back = RoundTrip(phase);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(back->begins_anew);
  EXPECT_EQ(back->line, 77u);
  EXPECT_EQ(back->id, VersionId());
  phase.keep = 0;
  EXPECT_THAT(std::string(RoundTrip(phase).status().message()),
              HasSubstr("seal.keep is 0; allowed: at least 1"));
}

TEST(PhaseAssemblyTest, AVerificationOfManyMessages) {
  Phase phase = PhaseOf(PhaseKind::kVerify);
  phase.checkpoint = Text(8 << 20);
  int count = 0;
  const absl::StatusOr<Phase> back =
      RoundTrip(phase, kMaxPhaseMessageBytes, &count);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(count, 3);
  EXPECT_EQ(back->kind, PhaseKind::kVerify);
  EXPECT_EQ(back->checkpoint, phase.checkpoint);
}

TEST(PhaseAssemblyTest, MoreThanAnyJobHasIsRefused) {
  v1::PhaseRequest rows;
  for (int i = 0; i < 513; ++i) rows.mutable_close()->add_rows();
  EXPECT_EQ(PhaseAssembly().Add(rows).code(),
            absl::StatusCode::kResourceExhausted);
  v1::PhaseRequest tensors;
  for (int i = 0; i < 100001; ++i) {
    tensors.mutable_compensated_gram()->add_tensors(0);
  }
  EXPECT_EQ(PhaseAssembly().Add(tensors).code(),
            absl::StatusCode::kResourceExhausted);
  v1::PhaseRequest replica;
  replica.mutable_update();
  for (int i = 0; i < 100001; ++i) {
    replica.mutable_replica_step()->add_tensors(0);
  }
  EXPECT_THAT(std::string(PhaseAssembly().Add(replica).message()),
              HasSubstr("a replica_step has 100001 tensors"));
}

TEST(PhaseAssemblyTest, WhatBecameOfACapture) {
  PhaseResult result;
  result.checkpoint.stage = CheckpointProgress::Stage::kWritten;
  result.checkpoint.id = {3, 4};
  result.checkpoint.part = {"part-00000-of-00002.npz", 1000, 0xabcd};
  result.checkpoint.num_skipped = 2;
  v1::PhaseReply reply;
  ASSERT_TRUE(PhaseReplies(result).Next(&reply));
  PhaseResult back;
  AppendReply(reply, nullptr, &back);
  EXPECT_EQ(back.checkpoint.stage, CheckpointProgress::Stage::kWritten);
  EXPECT_EQ(back.checkpoint.id, (VersionId{3, 4}));
  EXPECT_EQ(back.checkpoint.part.file, "part-00000-of-00002.npz");
  EXPECT_EQ(back.checkpoint.part.num_bytes, 1000);
  EXPECT_EQ(back.checkpoint.part.crc32c, 0xabcdu);
  EXPECT_EQ(back.checkpoint.num_skipped, 2);

  result.checkpoint.stage = CheckpointProgress::Stage::kFailed;
  result.checkpoint.error = absl::ResourceExhaustedError("the disk is full");
  ASSERT_TRUE(PhaseReplies(result).Next(&reply));
  AppendReply(reply, nullptr, &back);
  EXPECT_EQ(back.checkpoint.stage, CheckpointProgress::Stage::kFailed);
  EXPECT_EQ(back.checkpoint.error, result.checkpoint.error);
  EXPECT_EQ(back.checkpoint.part.file, "");

  reply.mutable_checkpoint()->set_code(0);  // a failure all the same
  AppendReply(reply, nullptr, &back);
  EXPECT_EQ(back.checkpoint.stage, CheckpointProgress::Stage::kFailed);
  EXPECT_FALSE(back.checkpoint.error.ok());
  reply.mutable_checkpoint()->set_stage(
      static_cast<v1::CheckpointProgress::Stage>(9));
  AppendReply(reply, nullptr, &back);
  EXPECT_EQ(back.checkpoint.stage, CheckpointProgress::Stage::kFailed);
  EXPECT_THAT(std::string(back.checkpoint.error.message()),
              HasSubstr("checkpoint.stage is 9; allowed: "));
}

std::vector<v1::PhaseReply> AllReplies(const PhaseResult& result) {
  PhaseReplies replies(result);
  std::vector<v1::PhaseReply> messages(1);
  while (replies.Next(&messages.back())) messages.emplace_back();
  messages.pop_back();
  return messages;
}

// An update of that many tensors, each of its numbers another one.
Phase LargeStep(int num_tensors, int num_rows) {
  Phase phase = PhaseOf(PhaseKind::kUpdate);
  phase.step.per_tensor = true;
  phase.step.excluded_ranks = {5};
  phase.step.learning_rate = 0.25;
  phase.step.step = 9;
  for (int t = 0; t < num_tensors; ++t) {
    phase.step.tensors.push_back(3 * t);
    phase.step.trust.push_back(static_cast<float>(t) + 0.5f);
    for (int row = 0; row < num_rows; ++row) {
      phase.step.coefficients.push_back(t + row / 1024.0);
    }
  }
  return phase;
}

TEST(PhaseConversionTest, LargeStepsTravelInSeveralMessages) {
  for (const int64_t max_bytes : {8, 24, 1000, 1 << 20}) {
    SCOPED_TRACE(max_bytes);
    const Phase phase = LargeStep(50, 7);
    int num_messages = 0;
    const auto back = RoundTrip(phase, max_bytes, &num_messages);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(num_messages > 1, max_bytes < 50 * 9 * 8);
    EXPECT_EQ(back->kind, PhaseKind::kUpdate);
    EXPECT_EQ(back->epoch, phase.epoch);
    EXPECT_EQ(back->step.coefficients, phase.step.coefficients);
    EXPECT_EQ(back->step.tensors, phase.step.tensors);
    EXPECT_EQ(back->step.trust, phase.step.trust);
    EXPECT_THAT(back->step.excluded_ranks, ElementsAre(5));
    EXPECT_EQ(back->step.learning_rate, 0.25);
    EXPECT_EQ(back->step.step, 9);
  }
}

// 2,030 tensors were the most that one message held.
TEST(PhaseConversionTest, AnyNumberOfTensorsIsSentToAnyNumberOfWorkers) {
  JobInfo job;
  job.max_workers = 512;
  job.shards = {"a:1", "b:1"};
  v1::Manifest manifest;
  for (int t = 0; t < 5000; ++t) {
    manifest.add_tensors()->set_name(absl::StrCat("tensor", t));
  }
  EXPECT_EQ(
      CheckMessageSize(static_cast<int64_t>(manifest.ByteSizeLong()), job),
      absl::OkStatus());
  const Phase phase = LargeStep(5000, 512);
  int num_messages = 0;
  const auto back = RoundTrip(phase, kMaxPhaseMessageBytes, &num_messages);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(num_messages, 7);
  EXPECT_EQ(back->step.coefficients, phase.step.coefficients);
}

TEST(PhaseConversionTest, AManifestMustStillFitAMessage) {
  JobInfo job;
  v1::Manifest manifest;
  for (int t = 0; t < 20000; ++t) {
    manifest.add_tensors()->set_name(std::string(500, 'x'));
  }
  const auto bytes = static_cast<int64_t>(manifest.ByteSizeLong());
  EXPECT_EQ(CheckMessageSize(bytes, job), absl::OkStatus());  // one shard
  job.shards = {"a:1", "b:1"};
  const absl::Status status = CheckMessageSize(bytes, job);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("manifest is ", bytes, " bytes")));
}

TEST(PhaseConversionTest, ALaterMessageIsOfTheSamePhase) {
  const Phase phase = LargeStep(2, 1);
  PhaseRequests requests(phase, 8);
  v1::PhaseRequest first, second;
  ASSERT_TRUE(requests.Next(&first));
  ASSERT_TRUE(requests.Next(&second));
  const auto refuses = [&](const v1::PhaseRequest& request) {
    PhaseAssembly back;
    EXPECT_EQ(back.Add(first), absl::OkStatus());
    return back.Add(request).code() == absl::StatusCode::kInvalidArgument;
  };
  v1::PhaseRequest other = second;
  other.mutable_norms();
  EXPECT_TRUE(refuses(other));
  other = second;
  other.set_round(second.round() + 1);
  EXPECT_TRUE(refuses(other));
  other = second;
  other.set_epoch(second.epoch() + 1);
  EXPECT_TRUE(refuses(other));
  EXPECT_FALSE(refuses(second));
}

TEST(PhaseConversionTest, EveryPhase) {
  Phase phase = PhaseOf(PhaseKind::kClose);
  phase.rows = {{0, 10}, {3, 13, 2}};
  absl::StatusOr<Phase> back = RoundTrip(phase);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kind, PhaseKind::kClose);
  EXPECT_EQ(back->epoch, 1u);
  EXPECT_EQ(back->round, 2u);
  ASSERT_EQ(back->rows.size(), 2u);
  EXPECT_EQ(back->rows[1].session, 13u);
  EXPECT_EQ(back->rows[0].attempt, 0u);
  EXPECT_EQ(back->rows[1].attempt, 2u);

  phase = PhaseOf(PhaseKind::kCompensatedGram);
  phase.tensors = {1, 5};
  back = RoundTrip(phase);
  ASSERT_TRUE(back.ok());
  EXPECT_THAT(back->tensors, ElementsAre(1, 5));

  for (PhaseKind kind : {PhaseKind::kNorms, PhaseKind::kUpdate}) {
    phase = PhaseOf(kind);
    phase.step.per_tensor = true;
    phase.step.coefficients = {0.25, 0.1};
    phase.step.excluded_ranks = {2};
    phase.step.learning_rate = 0.3;
    phase.step.group_rates = {0.3, 1.0 / 3.0};
    phase.step.renews_state = kind == PhaseKind::kUpdate;
    phase.step.step = 9;
    phase.step.trust = {1.0f, 0.5f};
    back = RoundTrip(phase);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->kind, kind);
    EXPECT_TRUE(back->step.per_tensor);
    EXPECT_THAT(back->step.coefficients, ElementsAre(0.25, 0.1));
    EXPECT_THAT(back->step.excluded_ranks, ElementsAre(2));
    EXPECT_EQ(back->step.learning_rate, 0.3);
    EXPECT_THAT(back->step.group_rates, ElementsAre(0.3, 1.0 / 3.0));
    EXPECT_EQ(back->step.renews_state, kind == PhaseKind::kUpdate);
    EXPECT_EQ(back->step.step, 9);
    EXPECT_THAT(back->step.trust, ElementsAre(1.0f, 0.5f));
  }

  phase = PhaseOf(PhaseKind::kPublish);
  phase.publish = {4, true, true, 77};
  back = RoundTrip(phase);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->publish.version, 4u);
  EXPECT_TRUE(back->publish.unchanged);
  EXPECT_TRUE(back->publish.seed);
  EXPECT_EQ(back->publish.seed_session, 77u);

  back = RoundTrip(PhaseOf(PhaseKind::kAbandon));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->kind, PhaseKind::kAbandon);

  EXPECT_EQ(PhaseAssembly().Add(v1::PhaseRequest()).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PhaseConversionTest, LargeResultsTravelInSeveralMessages) {
  PhaseResult result;
  for (int slice = 0; slice < 40; ++slice) {
    result.grams.push_back(
        {slice, std::vector<double>(20000, slice + 0.5),
         slice == 7 ? std::vector<double>{1.0, -1.0} : std::vector<double>()});
  }
  result.norms.push_back({3, 1.5, 2.5});
  result.seconds = 0.125;
  result.incomplete_ranks = {2, 511};
  result.not_finite_slice = 0;
  result.narrowing = {0, 5, 7, 3};
  const std::vector<v1::PhaseReply> replies = AllReplies(result);
  EXPECT_GE(replies.size(), 3u);
  PhaseResult back;
  for (const v1::PhaseReply& reply : replies) {
    EXPECT_LT(reply.ByteSizeLong(), 4u << 20);
    AppendReply(
        reply, [&](SliceGram gram) { back.grams.push_back(std::move(gram)); },
        &back);
  }
  EXPECT_THAT(back.incomplete_ranks, ElementsAre(2, 511));
  EXPECT_EQ(back.not_finite_slice, 0);
  EXPECT_EQ(back.narrowing.slice, 0);
  EXPECT_EQ(back.narrowing.num_infinite, 5u);
  EXPECT_EQ(back.narrowing.num_compared, 7u);
  EXPECT_EQ(back.narrowing.num_vanished, 3u);
  ASSERT_EQ(back.grams.size(), 40u);
  for (int slice = 0; slice < 40; ++slice) {
    EXPECT_EQ(back.grams[slice].slice, slice);
    EXPECT_EQ(back.grams[slice].hi, result.grams[slice].hi);
    EXPECT_EQ(back.grams[slice].lo, result.grams[slice].lo);
  }
  ASSERT_EQ(back.norms.size(), 1u);
  EXPECT_EQ(back.norms[0].update_norm_squared, 2.5);
  EXPECT_EQ(back.seconds, 0.125);
}

TEST(PhaseConversionTest, AnEmptyResultIsOneMessage) {
  const std::vector<v1::PhaseReply> replies = AllReplies(PhaseResult());
  ASSERT_EQ(replies.size(), 1u);
  PhaseResult back;
  AppendReply(replies[0], nullptr, &back);
  EXPECT_EQ(back.not_finite_slice, -1);
  EXPECT_EQ(back.narrowing.slice, -1);
}

TEST(PhaseConversionTest, SessionChange) {
  Phase phase = PhaseOf(PhaseKind::kSetSession);
  SessionChange& change = phase.session;
  change.session = 1;
  change.rank = 2;
  change.replaces = 3;
  change.keep_row = true;
  change.remove = true;
  change.seed_role = true;
  change.reason = "superseded";
  change.finished = true;
  change.first_round = 12;
  change.client = "host:1";
  const absl::StatusOr<Phase> arrived = RoundTrip(phase);
  ASSERT_TRUE(arrived.ok()) << arrived.status();
  EXPECT_EQ(arrived->epoch, 1u);
  const SessionChange& back = arrived->session;
  EXPECT_EQ(back.session, 1u);
  EXPECT_EQ(back.rank, 2);
  EXPECT_EQ(back.replaces, 3u);
  EXPECT_TRUE(back.keep_row && back.remove && back.seed_role);
  EXPECT_TRUE(back.finished);
  EXPECT_EQ(back.first_round, 12u);
  EXPECT_EQ(back.client, "host:1");
  EXPECT_EQ(back.reason, "superseded");
}

}  // namespace
}  // namespace agg
