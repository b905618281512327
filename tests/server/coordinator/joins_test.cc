#include "server/coordinator/joins.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/coordinator_types.h"
#include "server/coordinator/task_context.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class JoinQueueTest : public testing::Test {
 protected:
  // Rank r's Join has to be with the loop by second `deadline`.
  std::shared_ptr<PendingJoin> Pending(int32_t rank, int deadline) {
    JoinCall call;
    call.rank = rank;
    call.client = "test";
    return std::make_shared<PendingJoin>(
        call,
        [this, rank](const absl::StatusOr<JoinResult>& result) {
          answered_.push_back(rank);
          last_ = result.status();
        },
        nullptr, At(deadline));
  }
  static absl::Time At(int seconds) { return absl::FromUnixSeconds(seconds); }

  JoinQueue queue_;
  std::vector<int32_t> answered_;
  absl::Status last_;
};

TEST_F(JoinQueueTest, OneAtATimeInTheirOrder) {
  for (int32_t rank : {3, 1}) ASSERT_TRUE(queue_.Add(Pending(rank, 9)).ok());
  EXPECT_EQ(queue_.TryNext()->call().rank, 3);
  EXPECT_EQ(queue_.TryNext(), nullptr);
  queue_.Served();
  EXPECT_EQ(queue_.Next()->call().rank, 1);
  queue_.Served();
  EXPECT_EQ(queue_.TryNext(), nullptr);
  queue_.Stop();
  EXPECT_EQ(queue_.Next(), nullptr);
}

TEST_F(JoinQueueTest, WhoWaitsTooLongHearsOfTheShardThatIsLate) {
  for (int32_t rank : {0, 1, 2}) {
    ASSERT_TRUE(queue_.Add(Pending(rank, 30 + rank)).ok());
  }
  const std::shared_ptr<PendingJoin> served = queue_.TryNext();
  queue_.WaitFor({"shard 0 (a:1)", "shard 1 (b:2)"});
  queue_.NoteAnswer(0);
  queue_.Expire(At(29));
  EXPECT_THAT(answered_, ElementsAre());
  // Rank 1's waits behind, and its answer is the same.
  queue_.Expire(At(31));
  EXPECT_THAT(answered_, ElementsAre(0, 1));
  EXPECT_TRUE(absl::IsUnavailable(last_));
  EXPECT_THAT(std::string(last_.message()),
              HasSubstr("shard 1 (b:2) has not reserved memory for rank 0 "
                        "within 30s; join again"));
  // It has been answered: the loop is not to take it in.
  EXPECT_TRUE(absl::IsCancelled(served->CheckCaller()));
  EXPECT_FALSE(served->BeginJoining());
  EXPECT_FALSE(served->Refuse(absl::InternalError("")));
  queue_.Expire(At(31));
  EXPECT_THAT(answered_, ElementsAre(0, 1));
}

TEST_F(JoinQueueTest, WhatTheLoopHasDoesNotExpire) {
  ASSERT_TRUE(queue_.Add(Pending(0, 30)).ok());
  const std::shared_ptr<PendingJoin> served = queue_.TryNext();
  EXPECT_TRUE(served->BeginJoining());
  queue_.Expire(At(40));
  EXPECT_THAT(answered_, ElementsAre());
  EXPECT_EQ(served->CheckCaller(), absl::OkStatus());
  served->Answer(JoinResult());
  EXPECT_THAT(answered_, ElementsAre(0));
  EXPECT_EQ(last_, absl::OkStatus());
}

TEST_F(JoinQueueTest, IsBounded) {
  for (size_t i = 0; i < kMaxQueuedCalls; ++i) {
    ASSERT_TRUE(queue_.Add(Pending(0, 9)).ok());
  }
  EXPECT_TRUE(absl::IsUnavailable(queue_.Add(Pending(0, 9))));
}

}  // namespace
}  // namespace agg
