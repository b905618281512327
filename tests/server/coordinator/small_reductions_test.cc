#include "server/coordinator/small_reductions.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/job_record.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// What a caller hears: "4,6 of 0,1", "waits for 2", or an error's message.
std::string Text(const absl::StatusOr<ReduceAnswer>& answer) {
  if (!answer.ok()) return std::string(answer.status().message());
  if (answer->withdrawn) return "withdrawn";
  if (!answer->waiting_for.empty()) {
    return absl::StrCat("waits for ", absl::StrJoin(answer->waiting_for, ","),
                        answer->note.empty() ? "" : ": ", answer->note);
  }
  const KeptReduction& made = *answer->made;
  return absl::StrCat(
      absl::StrJoin(made.sums, ","), " of ", absl::StrJoin(made.ranks, ","),
      made.left_out.empty()
          ? ""
          : absl::StrCat(" without ", absl::StrJoin(made.left_out, ",")));
}

// A job with the ranks 0 to 2 at version 7. Session 10 and giver 100 are of
// rank 0, and so on.
class SmallReductionsTest : public testing::Test {
 protected:
  SmallReductionsTest() {
    job_.version = 7;
    job_.workers = 3;
    job_.members = {{0, 0, false}, {1, 0, false}, {2, 0, false}};
  }

  ReduceCall Call(int32_t rank, std::vector<double> values,
                  uint64_t number = 1) const {
    ReduceCall call;
    call.session = 10 + static_cast<uint64_t>(rank);
    call.name = {100 + static_cast<uint64_t>(rank), number};
    call.what = "the sum of x";
    call.values = std::move(values);
    return call;
  }
  // What the rank has heard comes into heard_[rank].
  void GiveCall(int32_t rank, const ReduceCall& call) {
    ASSERT_TRUE(SmallReductions::Check(call).ok());
    reductions_
        .Add(
            call, rank, job_, now_,
            [this, rank](const absl::StatusOr<ReduceAnswer>& answer) {
              heard_[rank].push_back(Text(answer));
            },
            &number_)
        .Run();
    Look();
  }
  void Give(int32_t rank, std::vector<double> values, uint64_t number = 1) {
    GiveCall(rank, Call(rank, std::move(values), number));
  }
  void Withdraw(int32_t rank, uint64_t number = 1) {
    ReduceCall call = Call(rank, {}, number);
    call.what.clear();
    call.withdraw = true;
    GiveCall(rank, call);
  }
  void Look() {
    reductions_.CloseIfDue(job_);
    uint64_t serial = 0;
    if (!shards_answer_) return;
    if (!reductions_.TakeUnconfirmed(&serial)) return;
    ++num_asked_;
    reductions_.Confirm(serial, absl::OkStatus()).Run();
  }
  void Commit(int32_t rank) {
    for (auto& member : job_.members) {
      if (member.rank == rank) member.committed = true;
    }
    Look();
  }
  void Drop(int32_t rank) {
    for (size_t i = 0; i < job_.members.size(); ++i) {
      if (job_.members[i].rank == rank) {
        job_.members.erase(job_.members.begin() + static_cast<int>(i));
        break;
      }
    }
    reductions_
        .FailSession(10 + static_cast<uint64_t>(rank),
                     absl::AbortedError("the session is over"))
        .Run();
    Look();
  }
  void Wait(absl::Duration duration) {
    now_ += duration;
    reductions_.AskAgain(job_, now_).Run();
  }

  SmallReductions reductions_;
  SmallReductions::Job job_;
  bool shards_answer_ = true;
  int num_asked_ = 0;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  uint64_t number_ = 0;
  std::map<int32_t, std::vector<std::string>> heard_;
};

TEST_F(SmallReductionsTest, IsMadeWhenAllHaveGiven) {
  Give(2, {4, 40});
  Give(0, {1, 10});
  EXPECT_THAT(heard_, IsEmpty());
  Give(1, {2, 20});
  for (int rank : {0, 1, 2}) {
    EXPECT_THAT(heard_[rank], ElementsAre("7,70 of 0,1,2"));
  }
  EXPECT_FALSE(reductions_.open());
}

// 1 + 2^53 - 2^53 is 0 in this order, and 1 in another one.
TEST_F(SmallReductionsTest, IsSummedByRankWhoeverComesFirst) {
  const double large = 9007199254740992;
  for (const std::vector<int>& order :
       {std::vector<int>{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
    reductions_ = SmallReductions();
    heard_.clear();
    const std::map<int, double> values = {{0, 1}, {1, large}, {2, -large}};
    for (int rank : order) Give(rank, {values.at(rank)});
    EXPECT_THAT(heard_[0], ElementsAre("0 of 0,1,2"));
  }
}

TEST_F(SmallReductionsTest, WhoIsGoneIsNeitherWaitedForNorCounted) {
  Give(0, {1});
  Give(1, {2});
  Drop(1);  // lost while it waits
  EXPECT_THAT(heard_[1], ElementsAre("the session is over"));
  EXPECT_THAT(heard_[0], IsEmpty());
  Drop(2);
  EXPECT_THAT(heard_[0], ElementsAre("1 of 0"));
}

// A new session of the same client goes on with its call.
TEST_F(SmallReductionsTest, ARankThatComesBackGivesOnce) {
  Give(1, {2});
  Drop(1);
  job_.members.push_back({1, 0, false});
  ReduceCall again = Call(1, {5});
  again.session = 99;
  GiveCall(1, again);
  Give(0, {1});
  Give(2, {4});
  EXPECT_THAT(heard_[0], ElementsAre("10 of 0,1,2"));
  EXPECT_EQ(heard_[1].back(), "10 of 0,1,2");
}

TEST_F(SmallReductionsTest, WhoHasNotHeardGetsTheSameAgain) {
  Give(0, {1});
  Give(1, {2});
  Give(2, {4});
  Give(1, {2});  // its connection broke
  EXPECT_THAT(heard_[1], ElementsAre("7 of 0,1,2", "7 of 0,1,2"));
  EXPECT_EQ(num_asked_, 1);  // all shards have it already
  // Beside the next reduction, too; whatever versions are made meanwhile.
  job_.version = 9;
  Give(0, {10}, 2);
  Give(1, {2});
  EXPECT_THAT(heard_[1], SizeIs(3));
  EXPECT_EQ(heard_[1].back(), "7 of 0,1,2");
  Give(1, {20}, 2);
  Give(2, {40}, 2);
  EXPECT_EQ(heard_[2].back(), "70 of 0,1,2");
}

// It may be at any step of its program: nobody else's call is its own.
TEST_F(SmallReductionsTest, AProcessThatBeginsAnewGetsNoSumsOfTheFormerOne) {
  for (int rank : {0, 1, 2}) Give(rank, {1});
  ReduceCall other = Call(1, {5});
  other.name.giver = 77;
  GiveCall(1, other);
  EXPECT_THAT(heard_[1], SizeIs(1));
  Give(0, {10}, 2);
  Give(2, {20}, 2);
  EXPECT_EQ(heard_[1].back(), "35 of 0,1,2");
}

// Another process knows what the facts have, and the answers are the same.
TEST_F(SmallReductionsTest, GoesOnFromWhatIsKept) {
  for (int rank : {0, 1, 2}) Give(rank, {1.0 * rank});
  Give(0, {5}, 2);
  SmallReductions other;
  other.SetKept(reductions_.kept());
  EXPECT_FALSE(other.open());  // what is open is given again
  reductions_ = other;
  heard_.clear();
  Give(2, {77});
  EXPECT_THAT(heard_[2], ElementsAre("3 of 0,1,2"));
  EXPECT_EQ(num_asked_, 2);  // whether the shards have it, it does not know
  for (int rank : {0, 1, 2}) Give(rank, {1}, 2);
  EXPECT_THAT(heard_[0], ElementsAre("3 of 0,1,2"));
}

// A rank that was left out of a later one, and had not heard of this one.
TEST_F(SmallReductionsTest, WhatIsNotKeptAnyMoreIsSaid) {
  for (int rank : {0, 1, 2}) Give(rank, {1});
  Commit(2);
  Give(0, {1}, 2);
  Give(1, {1}, 2);
  EXPECT_EQ(heard_[0].back(), "2 of 0,1 without 2");
  Give(2, {1});
  EXPECT_THAT(heard_[2].back(),
              AllOf(HasSubstr("reduction 1 of rank 2"), HasSubstr("not kept")));
  Give(0, {1});
  EXPECT_THAT(heard_[0].back(), HasSubstr("not kept"));
  EXPECT_FALSE(reductions_.open());
}

TEST_F(SmallReductionsTest, WhoDiffersIsToldAndTheOthersWait) {
  ReduceCall other = Call(1, {2, 3});
  other.what = "the sum of y";
  Give(0, {1});
  GiveCall(1, other);
  EXPECT_THAT(
      heard_[1],
      ElementsAre(AllOf(HasSubstr("rank 1 reduces the sum of y (values: 2)"),
                        HasSubstr("rank 0 waits for the sum of x (values: 1)"),
                        HasSubstr("allowed"))));
  EXPECT_THAT(heard_[0], IsEmpty());
  Wait(SmallReductions::kAskAgain);
  EXPECT_THAT(heard_[0],
              ElementsAre("waits for 1,2: rank 1 has asked for the sum of y "
                          "(values: 2) instead"));
  // Also to who has asked again meanwhile.
  Give(0, {1});
  Wait(SmallReductions::kAskAgain);
  EXPECT_THAT(heard_[0].back(), HasSubstr("rank 1 has asked for the sum of y"));
  // The same text with another number of values.
  Give(1, {1, 2}, 2);
  EXPECT_THAT(heard_[1].back(), HasSubstr("(values: 2)"));
  // It goes on as if nothing had been.
  Give(0, {1});
  Give(1, {2}, 3);
  Wait(SmallReductions::kAskAgain);
  EXPECT_EQ(heard_[0].back(), "waits for 2");
  Give(0, {1});
  Give(1, {2}, 3);
  Give(2, {4});
  EXPECT_EQ(heard_[0].back(), "7 of 0,1,2");
  EXPECT_EQ(heard_[1].back(), "7 of 0,1,2");
}

// It came first, and the others must not fail for that.
TEST_F(SmallReductionsTest, WhoTakesPartLaterMakesWay) {
  job_.members[2].first_round = 8;
  ReduceCall late = Call(2, {0});
  late.what = "the sum of y";
  GiveCall(2, late);
  Give(0, {1});
  EXPECT_THAT(
      heard_[2],
      ElementsAre(HasSubstr("rank 2 reduces the sum of y (values: 1)")));
  EXPECT_THAT(heard_[0], IsEmpty());
  late.name.call = 2;
  GiveCall(2, late);
  EXPECT_THAT(heard_[2], SizeIs(2));
  Give(1, {2});
  EXPECT_THAT(heard_[0], ElementsAre("3 of 0,1 without 2"));
}

TEST_F(SmallReductionsTest, LongTextsAreShownWhereTheyDiffer) {
  const std::string same(3000, 'n');
  ReduceCall first = Call(0, {1});
  first.what = same + "first\u00e9";
  ReduceCall second = Call(1, {1});
  second.what = same + "second\u00e9";
  GiveCall(0, first);
  GiveCall(1, second);
  EXPECT_THAT(heard_[1].back(),
              AllOf(HasSubstr("nfirst\u00e9"), HasSubstr("nsecond\u00e9")));
  EXPECT_THAT(heard_[1].back(), SizeIs(testing::Lt(1200u)));
}

TEST_F(SmallReductionsTest, WhatIsWithdrawnDoesNotCount) {
  Give(0, {1});
  Withdraw(0);
  EXPECT_THAT(heard_[0], ElementsAre("the values are withdrawn", "withdrawn"));
  EXPECT_FALSE(reductions_.open());
  ReduceCall other = Call(0, {2, 3}, 2);
  other.what = "the sum of y";
  GiveCall(0, other);
  for (int rank : {1, 2}) {
    other = Call(rank, {2, 3});
    other.what = "the sum of y";
    GiveCall(rank, other);
  }
  EXPECT_EQ(heard_[0].back(), "6,9 of 0,1,2");
  // It was made meanwhile.
  Withdraw(1);
  EXPECT_EQ(heard_[1].back(), "6,9 of 0,1,2");
  Withdraw(0, 1);
  EXPECT_THAT(heard_[0].back(), HasSubstr("not kept"));
}

// It was told that its values do not count.
TEST_F(SmallReductionsTest, AWithdrawalMayOvertakeItsCall) {
  Give(1, {2});
  Give(2, {4});
  Withdraw(0);
  Give(0, {1});
  EXPECT_THAT(heard_[0], ElementsAre("withdrawn",
                                     "the values of this call were withdrawn"));
  EXPECT_TRUE(reductions_.open());
  Give(0, {8}, 2);
  EXPECT_EQ(heard_[0].back(), "14 of 0,1,2");
  // The call of another process has the same place among its calls.
  for (int rank : {1, 2}) Give(rank, {1}, 2);
  Withdraw(0, 3);
  ReduceCall other = Call(0, {5}, 3);
  other.name.giver = 77;
  GiveCall(0, other);
  EXPECT_EQ(heard_[0].back(), "7 of 0,1,2");
}

// The job has lost its parameters since.
TEST_F(SmallReductionsTest, WhatWasMadeIsToldBeforeTheSeedAndNothingIsTaken) {
  for (int rank : {0, 1, 2}) Give(rank, {1});
  job_.seeded = false;
  Give(1, {1});
  EXPECT_EQ(heard_[1].back(), "3 of 0,1,2");
  Withdraw(2);
  EXPECT_EQ(heard_[2].back(), "3 of 0,1,2");
  Give(1, {1}, 2);
  EXPECT_THAT(heard_[1].back(), HasSubstr("Seed first"));
  EXPECT_FALSE(reductions_.open());
}

// Calls may overtake one another.
TEST_F(SmallReductionsTest, AFormerCallDoesNotTouchALaterOne) {
  Give(0, {1}, 2);
  Give(0, {9}, 1);
  EXPECT_THAT(heard_[0], ElementsAre("a later call of this rank has come"));
  Withdraw(0, 1);
  EXPECT_EQ(heard_[0].back(), "withdrawn");
  Give(1, {2});
  Give(2, {4});
  EXPECT_EQ(heard_[0].back(), "7 of 0,1,2");
}

TEST_F(SmallReductionsTest, WhoseConnectionEndsIsWithdrawnAndNotCalled) {
  Give(0, {1});
  reductions_.Remove(number_);
  EXPECT_FALSE(reductions_.open());
  Give(1, {2});
  Give(2, {4});
  EXPECT_THAT(heard_, IsEmpty());
  Give(0, {8}, 2);
  EXPECT_THAT(heard_[0], ElementsAre("14 of 0,1,2"));
}

TEST_F(SmallReductionsTest, WhoIsSilentIsWithdrawn) {
  Give(0, {1});
  Wait(SmallReductions::kAskAgain);
  EXPECT_THAT(heard_[0], ElementsAre("waits for 1,2"));
  Wait(SmallReductions::kSilent - absl::Milliseconds(1));
  EXPECT_TRUE(reductions_.open());
  Wait(absl::Milliseconds(1));
  EXPECT_FALSE(reductions_.open());
  // Not who asks again and again.
  for (int i = 0; i < 10; ++i) {
    Give(0, {1}, 2);
    Wait(SmallReductions::kAskAgain);
    EXPECT_TRUE(reductions_.open());
  }
}

// One that joined meanwhile, or another part of the program: it waits for the
// others' rows, and they would wait here for it.
TEST_F(SmallReductionsTest, WhoWaitsForTheRoundOfOthersIsNotWaitedFor) {
  Give(0, {1});
  Commit(2);
  EXPECT_THAT(heard_, IsEmpty());
  Give(1, {2});
  EXPECT_THAT(heard_[0], ElementsAre("3 of 0,1 without 2"));
}

TEST_F(SmallReductionsTest, BesideARoundAllAreWaitedFor) {
  for (int rank : {0, 1, 2}) Commit(rank);
  Give(0, {1});
  Give(1, {2});
  EXPECT_THAT(heard_, IsEmpty());
  Give(2, {4});
  EXPECT_THAT(heard_[0], ElementsAre("7 of 0,1,2"));
}

TEST_F(SmallReductionsTest, WhoBeginsWithALaterRoundIsNotWaitedFor) {
  job_.members[2].first_round = 8;
  Give(0, {1});
  Give(1, {2});
  EXPECT_THAT(heard_[0], ElementsAre("3 of 0,1 without 2"));
  // What it gives counts.
  Give(2, {4});
  Give(0, {1}, 2);
  Give(1, {2}, 2);
  EXPECT_EQ(heard_[0].back(), "7 of 0,1,2");
}

TEST_F(SmallReductionsTest, AJobThatHasNotBegunWaitsForAll) {
  job_.started = false;
  Drop(2);
  Give(0, {1});
  Give(1, {2});
  EXPECT_THAT(heard_, IsEmpty());
  Wait(SmallReductions::kAskAgain);
  EXPECT_THAT(heard_[0], ElementsAre("waits for 2"));
  job_.members.push_back({2, 0, false});
  Give(2, {4});
  EXPECT_THAT(heard_[2], ElementsAre("7 of 0,1,2"));
  EXPECT_THAT(heard_[0], SizeIs(1));  // it will ask again
  Give(0, {1});
  EXPECT_EQ(heard_[0].back(), "7 of 0,1,2");
}

TEST_F(SmallReductionsTest, SaysForWhomACallWaits) {
  Give(1, {2});
  Wait(SmallReductions::kAskAgain - absl::Milliseconds(1));
  EXPECT_THAT(heard_, IsEmpty());
  Wait(absl::Milliseconds(1));
  EXPECT_THAT(heard_[1], ElementsAre("waits for 0,2"));
  Wait(absl::ZeroDuration());  // once for each call
  EXPECT_THAT(heard_[1], SizeIs(1));
}

// Rounds go on without who waits here: by a quorum.
TEST_F(SmallReductionsTest, ARoundThatEndsChangesNothing) {
  Give(0, {1});
  job_.version = 8;
  Look();
  EXPECT_THAT(heard_, IsEmpty());
  Give(1, {2});
  Give(2, {4});
  EXPECT_THAT(heard_[0], ElementsAre("7 of 0,1,2"));
}

TEST_F(SmallReductionsTest, EpochsEnd) {
  Give(0, {1});
  shards_answer_ = false;
  reductions_.FailAll(absl::UnavailableError("shard lost")).Run();
  EXPECT_EQ(heard_[0].back(), "shard lost");
  EXPECT_FALSE(reductions_.open());
  for (int rank : {0, 1, 2}) Give(rank, {1});
  ASSERT_NE(reductions_.kept(), nullptr);
  reductions_.FailAll(absl::UnavailableError("shard lost again")).Run();
  EXPECT_EQ(heard_[0].back(), "shard lost again");
  EXPECT_NE(reductions_.kept(), nullptr);
  shards_answer_ = true;
  Give(0, {1});
  EXPECT_EQ(heard_[0].back(), "3 of 0,1,2");
}

TEST_F(SmallReductionsTest, IsToldWhenTheShardsHaveIt) {
  shards_answer_ = false;
  for (int rank : {0, 1, 2}) Give(rank, {1});
  EXPECT_THAT(heard_, IsEmpty());
  uint64_t serial = 0;
  ASSERT_TRUE(reductions_.TakeUnconfirmed(&serial));
  uint64_t again = 0;
  EXPECT_FALSE(reductions_.TakeUnconfirmed(&again));  // under way
  reductions_.Confirm(serial, absl::UnavailableError("not in time")).Run();
  EXPECT_THAT(heard_[1], ElementsAre("not in time"));
  Give(1, {1});
  ASSERT_TRUE(reductions_.TakeUnconfirmed(&serial));
  reductions_.Confirm(serial, absl::OkStatus()).Run();
  EXPECT_EQ(heard_[1].back(), "3 of 0,1,2");
  EXPECT_FALSE(reductions_.TakeUnconfirmed(&serial));
  Give(2, {1});  // at once
  EXPECT_EQ(heard_[2].back(), "3 of 0,1,2");
}

// A shard has stopped, and callers come and go: one answer a rank is kept, and
// none of those who are gone.
TEST_F(SmallReductionsTest, AnswersThatWaitAreBounded) {
  shards_answer_ = false;
  job_.members = {{0, 0, false}};
  job_.workers = 1;
  uint64_t serial = 0;
  int num_asked = 0;
  for (uint64_t call = 1; call <= 100; ++call) {
    Give(0, {1}, call);
    if (reductions_.TakeUnconfirmed(&serial)) ++num_asked;
    reductions_.Remove(number_);
    EXPECT_EQ(reductions_.kept().use_count(), 1);
  }
  EXPECT_EQ(num_asked, 1);
  EXPECT_THAT(heard_, IsEmpty());
  Give(0, {1}, 101);
  Give(0, {1}, 101);
  EXPECT_THAT(heard_[0], ElementsAre("another call of this rank has come"));
  // What was asked for is not this one.
  reductions_.Confirm(serial, absl::OkStatus()).Run();
  EXPECT_THAT(heard_[0], SizeIs(1));
  ASSERT_TRUE(reductions_.TakeUnconfirmed(&serial));
  reductions_.Confirm(serial, absl::OkStatus()).Run();
  EXPECT_EQ(heard_[0].back(), "1 of 0");
}

TEST_F(SmallReductionsTest, IsBounded) {
  ReduceCall call = Call(0, std::vector<double>(8192));
  EXPECT_TRUE(SmallReductions::Check(call).ok());
  call.values.push_back(0);
  EXPECT_THAT(SmallReductions::Check(call).message(),
              AllOf(HasSubstr("values is 8193"), HasSubstr("1 to 8192"),
                    HasSubstr("a job of their own")));
  call.values.clear();
  EXPECT_FALSE(SmallReductions::Check(call).ok());
  call = Call(0, {1});
  call.what = std::string(4097, 'x');
  EXPECT_THAT(SmallReductions::Check(call).message(),
              HasSubstr("what is 4097 bytes"));
  call.what.clear();
  EXPECT_FALSE(SmallReductions::Check(call).ok());
  call = Call(0, {1}, 0);
  EXPECT_THAT(SmallReductions::Check(call).message(), HasSubstr("call is 0"));
  call = Call(0, {1});
  call.name.giver = 0;
  EXPECT_THAT(SmallReductions::Check(call).message(),
              AllOf(HasSubstr("giver is 0"), HasSubstr("random number")));
}

}  // namespace
}  // namespace agg
