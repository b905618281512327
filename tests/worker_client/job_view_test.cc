#include "worker_client/job_view.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "worker_client/channel.h"

namespace agg {
namespace {

constexpr uint64_t kSession = 7;

v1::JoinReply Reply(uint64_t epoch) {
  v1::JoinReply reply;
  reply.set_epoch(epoch);
  reply.set_session(kSession);
  reply.set_seeded(true);
  reply.set_version(3);
  return reply;
}

// Of version 3, that came with a view.
HeldVersion Held(const JobView& view) {
  return {true, 3, 1, view.session(), view.serial()};
}

class JobViewTest : public ::testing::Test {
 protected:
  std::unique_ptr<JobView> First() {
    return std::make_unique<JobView>(options, Reply(1), channel);
  }
  std::unique_ptr<JobView> Next(const JobView& before, v1::JoinReply reply,
                                const HeldVersion& held) {
    return std::make_unique<JobView>(options, std::move(reply), channel, before,
                                     held);
  }
  ClientOptions options;
  // Nobody is called.
  const std::shared_ptr<grpc::Channel> channel = MakeChannel("127.0.0.1:1");
};

TEST_F(JobViewTest, AnEpochInWhichTheParametersAreGoodHasTheSamePast) {
  const auto first = First();
  const auto second = Next(*first, Reply(2), Held(*first));
  EXPECT_EQ(second->standing(Held(*first)), Standing::kGood);
  EXPECT_EQ(second->past(), first->past());
}

TEST_F(JobViewTest, ARewindHasAnotherPastAlsoForWhoHasPulledSince) {
  const auto first = First();
  v1::JoinReply reply = Reply(2);
  reply.set_rewound(true);
  const auto second = Next(*first, reply, Held(*first));
  EXPECT_EQ(second->standing(Held(*first)), Standing::kRewound);
  // Another thread of the client pulls over it.
  EXPECT_EQ(second->standing(Held(*second)), Standing::kGood);
  EXPECT_NE(second->past(), first->past());
  // And in the next epoch the past is still that one.
  const auto third = Next(*second, Reply(3), Held(*second));
  EXPECT_EQ(third->past(), second->past());
}

TEST_F(JobViewTest, WhatIsNotKnownToBeTheSameIsAnotherPast) {
  const auto first = First();
  EXPECT_NE(Next(*first, Reply(2), HeldVersion())->past(), first->past());
  v1::JoinReply reply = Reply(2);
  reply.set_session(kSession + 1);
  EXPECT_NE(Next(*first, reply, Held(*first))->past(), first->past());
  reply = Reply(2);
  reply.set_seeded(false);
  EXPECT_NE(Next(*first, reply, Held(*first))->past(), first->past());
  options.observer = true;
  EXPECT_NE(Next(*first, Reply(2), Held(*first))->past(), first->past());
}

// What is known of the shards' memory is so until a shard is asked again, if it
// ever is: a lease says it in each epoch.
TEST_F(JobViewTest, TransportsAreKnownInTheNextEpochToo) {
  v1::JoinReply reply = Reply(1);
  reply.add_shards("127.0.0.1:1");
  reply.add_shards("127.0.0.1:2");
  const JobView first(options, reply, channel);
  first.NoteShared(0, true);
  EXPECT_EQ(first.transports(), "");
  first.NoteShared(1, false);
  EXPECT_EQ(first.transports(), "shm tcp");
  reply.set_epoch(2);
  const auto second = Next(first, reply, Held(first));
  EXPECT_EQ(second->transports(), "shm tcp");
  second->NoteShared(0, true, /*device=*/true);
  EXPECT_EQ(second->transports(), "cuda tcp");
  second->NoteShared(0, false);
  EXPECT_EQ(second->transports(), "tcp tcp");
}

}  // namespace
}  // namespace agg
