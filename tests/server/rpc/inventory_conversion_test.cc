#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/control.pb.h"
#include "server/round/phase.h"
#include "server/round/recovery.h"
#include "server/round/shard_peer.h"
#include "server/rpc/phase_conversion.h"

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

// A shard of an older release says nothing of it.
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

}  // namespace
}  // namespace agg
