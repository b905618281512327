#include "server/coordinator/small_reductions.h"

#include <cstdint>
#include <limits>
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
#include "server/coordinator/kept_reduction.h"

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
  if (!answer->waiting_for.empty()) {
    return absl::StrCat("waits for ", absl::StrJoin(answer->waiting_for, ","));
  }
  return absl::StrCat(
      absl::StrJoin(answer->sums, ","), " of ",
      absl::StrJoin(answer->ranks, ","),
      answer->left_out.empty()
          ? ""
          : absl::StrCat(" without ", absl::StrJoin(answer->left_out, ",")));
}

// A job with the ranks 0 to 2 at version 7. Session 10 is of rank 0, and so on.
class SmallReductionsTest : public testing::Test {
 protected:
  SmallReductionsTest() {
    job_.history = 1;
    job_.version = 7;
    job_.workers = 3;
    job_.members = {{0, 0, false}, {1, 0, false}, {2, 0, false}};
  }

  ReduceCall Call(int32_t rank, std::vector<double> values,
                  uint32_t number = 0) const {
    ReduceCall call;
    call.session = 10 + rank;
    call.version = 7;
    call.number = number;
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
  void Give(int32_t rank, std::vector<double> values, uint32_t number = 0) {
    GiveCall(rank, Call(rank, std::move(values), number));
  }
  void Look() {
    reductions_.CloseIfDue(job_);
    for (const SmallReductions::Made& made : reductions_.TakeMade()) {
      made.done(made.answer);
    }
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
        job_.members.erase(job_.members.begin() + i);
        break;
      }
    }
    Look();
  }

  SmallReductions reductions_;
  SmallReductions::Job job_;
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

TEST_F(SmallReductionsTest, WhoLeavesIsNotWaitedForAndWhatItGaveCounts) {
  Give(0, {1});
  Give(1, {2});
  Drop(1);  // lost while it waits
  EXPECT_THAT(heard_, IsEmpty());
  Drop(2);
  EXPECT_THAT(heard_[0], ElementsAre("3 of 0,1"));
}

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
  EXPECT_THAT(
      heard_[1],
      ElementsAre("another call of this rank has taken this one's place",
                  "10 of 0,1,2"));
}

TEST_F(SmallReductionsTest, WhoHasNotHeardGetsTheSameAgain) {
  Give(0, {1});
  Give(1, {2});
  Give(2, {4});
  Give(1, {3});  // its connection broke; its values are others now
  EXPECT_THAT(heard_[1], ElementsAre("7 of 0,1,2", "7 of 0,1,2"));
  // Beside the next reduction, too.
  Give(0, {10}, 1);
  Give(1, {2});
  EXPECT_THAT(heard_[1], SizeIs(3));
  EXPECT_EQ(heard_[1].back(), "7 of 0,1,2");
  Give(1, {20}, 1);
  Give(2, {40}, 1);
  EXPECT_EQ(heard_[2].back(), "70 of 0,1,2");
}

// Another process knows what the facts have, and the answers are the same.
TEST_F(SmallReductionsTest, GoesOnFromWhatIsKept) {
  for (int rank : {0, 1, 2}) Give(rank, {1.0 * rank});
  Give(0, {5}, 1);
  SmallReductions other;
  other.SetKept(reductions_.kept());
  EXPECT_FALSE(other.open());  // what is open is given again
  reductions_ = other;
  heard_.clear();
  Give(2, {77});
  EXPECT_THAT(heard_[2], ElementsAre("3 of 0,1,2"));
  for (int rank : {0, 1, 2}) Give(rank, {1}, 1);
  EXPECT_THAT(heard_[0], ElementsAre("3 of 0,1,2"));
  // What was made before a rewind is of a past that was given up.
  job_.history = 2;
  Give(0, {1});
  EXPECT_THAT(heard_[0], SizeIs(1));
  EXPECT_TRUE(reductions_.open());
}

TEST_F(SmallReductionsTest, TheNewestAreKeptAlone) {
  for (uint32_t n = 0; n < SmallReductions::kMaxKept + 1; ++n) {
    for (int rank : {0, 1, 2}) Give(rank, {1}, n);
  }
  EXPECT_THAT(reductions_.kept(), SizeIs(SmallReductions::kMaxKept));
  Give(0, {1});
  EXPECT_THAT(heard_[0].back(),
              AllOf(HasSubstr("at reduction 0 of version 7"),
                    HasSubstr("at reduction 17"), HasSubstr("make another")));
  const std::vector<double> many(SmallReductions::kMaxValues, 1);
  for (int rank : {0, 1, 2}) Give(rank, many, 17);
  EXPECT_THAT(reductions_.kept(), SizeIs(1));
  // Of another version none of the former ones.
  job_.version = 8;
  for (int rank : {0, 1, 2}) {
    ReduceCall call = Call(rank, {1});
    call.version = 8;
    GiveCall(rank, call);
  }
  ASSERT_THAT(reductions_.kept(), SizeIs(1));
  EXPECT_EQ(reductions_.kept().front().name.version, 8u);
}

TEST_F(SmallReductionsTest, AnotherShapeIsSaidToBoth) {
  ReduceCall other = Call(1, {2, 3});
  other.what = "the sum of y";
  Give(0, {1});
  GiveCall(1, other);
  const auto both =
      AllOf(HasSubstr("rank 0 reduces the sum of x (values: 1)"),
            HasSubstr("rank 1 the sum of y (values: 2)"), HasSubstr("allowed"));
  EXPECT_THAT(heard_[0], ElementsAre(both));
  EXPECT_THAT(heard_[1], ElementsAre(both));
  // Nothing is left of it.
  EXPECT_FALSE(reductions_.open());
  for (int rank : {0, 1, 2}) Give(rank, {1});
  EXPECT_EQ(heard_[0].back(), "3 of 0,1,2");
  // The same text with another number of values; and of what is made.
  Give(0, {1}, 1);
  Give(1, {1, 2}, 1);
  EXPECT_THAT(heard_[1].back(), HasSubstr("(values: 2)"));
  GiveCall(2, other);
  EXPECT_THAT(heard_[2].back(), HasSubstr("rank 2 reduces the sum of y"));
}

TEST_F(SmallReductionsTest, WhoWasStoppedMayGiveSomethingElse) {
  ReduceCall other = Call(0, {2, 3});
  other.what = "the sum of y";
  Give(0, {1});
  reductions_.Remove(number_);
  GiveCall(0, other);
  for (int rank : {1, 2}) {
    other.session = 10 + rank;
    GiveCall(rank, other);
  }
  EXPECT_THAT(heard_[0], ElementsAre("6,9 of 0,1,2"));
}

TEST_F(SmallReductionsTest, WhoIsGoneIsNotCalledAndWhatItGaveCounts) {
  Give(0, {1});
  reductions_.Remove(number_);
  Give(1, {2});
  Give(2, {4});
  EXPECT_THAT(heard_[0], IsEmpty());
  EXPECT_THAT(heard_[1], ElementsAre("7 of 0,1,2"));
}

// One that joined meanwhile, or another part of the program: it waits for the
// others' rows, and they would wait here for it.
TEST_F(SmallReductionsTest, WhoWaitsForTheRoundOfOthersIsNotWaitedFor) {
  Give(0, {1});
  Commit(2);
  EXPECT_THAT(heard_, IsEmpty());
  Give(1, {2});
  EXPECT_THAT(heard_[0], ElementsAre("3 of 0,1 without 2"));
  // It is not in the next one of this version either; in that of the next it
  // is.
  Give(0, {1}, 1);
  Give(1, {1}, 1);
  EXPECT_EQ(heard_[0].back(), "2 of 0,1 without 2");
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
  EXPECT_THAT(heard_[0], ElementsAre("3 of 0,1"));
}

TEST_F(SmallReductionsTest, AJobThatHasNotBegunWaitsForAll) {
  job_.started = false;
  Drop(2);
  Give(0, {1});
  Give(1, {2});
  EXPECT_THAT(heard_, IsEmpty());
  now_ += SmallReductions::kAskAgain;
  reductions_.AskAgain(job_, now_).Run();
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
  now_ += SmallReductions::kAskAgain - absl::Milliseconds(1);
  reductions_.AskAgain(job_, now_).Run();
  EXPECT_THAT(heard_, IsEmpty());
  now_ += absl::Milliseconds(1);
  reductions_.AskAgain(job_, now_).Run();
  EXPECT_THAT(heard_[1], ElementsAre("waits for 0,2"));
  reductions_.AskAgain(job_, now_).Run();  // once for each call
  EXPECT_THAT(heard_[1], SizeIs(1));
}

TEST_F(SmallReductionsTest, WhoHasAnotherVersionDoesNotWait) {
  job_.version = 8;
  Give(1, {5});  // a quorum has gone on without it
  EXPECT_THAT(heard_[1], ElementsAre("5 of 1 without 0,2"));
  EXPECT_THAT(reductions_.kept(), IsEmpty());
  job_.version = 6;
  Give(1, {5});
  EXPECT_THAT(heard_[1].back(),
              AllOf(HasSubstr("version 7"), HasSubstr("at version 6")));
}

// Those who are in have another version than who was here: by a quorum.
TEST_F(SmallReductionsTest, ARoundThatEndsMakesItWithThoseWhoAreThere) {
  Give(0, {1});
  job_.version = 8;
  Look();
  EXPECT_THAT(heard_[0], ElementsAre("1 of 0 without 1,2"));
}

TEST_F(SmallReductionsTest, SessionsAndEpochsEnd) {
  Give(0, {1});
  Give(1, {2});
  reductions_.FailSession(11, absl::AbortedError("evicted: by hand")).Run();
  EXPECT_THAT(heard_[1], ElementsAre("evicted: by hand"));
  Drop(1);
  Give(2, {4});
  EXPECT_THAT(heard_[0], ElementsAre("7 of 0,1,2"));
  Give(0, {1}, 1);
  reductions_.FailAll(absl::UnavailableError("shard lost")).Run();
  EXPECT_EQ(heard_[0].back(), "shard lost");
  EXPECT_FALSE(reductions_.open());
  EXPECT_THAT(reductions_.kept(), SizeIs(1));
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
}

}  // namespace
}  // namespace agg
