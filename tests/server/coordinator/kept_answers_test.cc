#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/outcome_waiters.h"

namespace agg {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class KeptAnswersTest : public testing::Test {
 protected:
  void Add(const std::string& what) {
    answers_.Add(what, now_, [this, what](const absl::Status& status) {
      said_.push_back(what + ": " + std::string(status.message()));
    });
  }
  const absl::Time now_ = absl::FromUnixSeconds(1000);
  KeptAnswers answers_;
  std::vector<std::string> said_;
};

TEST_F(KeptAnswersTest, WhoComesMeanwhileWaitsForTheNextWord) {
  Add("a");
  answers_.Send();
  Add("b");
  answers_.Kept().Run();
  EXPECT_THAT(said_, ElementsAre("a: "));
  answers_.Send();
  answers_.NotKept();
  answers_.Kept().Run();  // of nothing
  EXPECT_EQ(answers_.size(), 1u);
  answers_.Send();
  answers_.Kept().Run();
  EXPECT_THAT(said_, ElementsAre("a: ", "b: "));
}

TEST_F(KeptAnswersTest, EachWaitEnds) {
  Add("rank 1 is evicted");
  answers_.Send();
  Add("the rule is set");
  answers_.Expire(now_ + absl::Seconds(29), "x").Run();
  EXPECT_THAT(said_, IsEmpty());
  answers_.Expire(now_ + absl::Seconds(30), "shard 1 is frozen").Run();
  ASSERT_THAT(said_, testing::SizeIs(2));
  EXPECT_THAT(said_[0],
              AllOf(HasSubstr("rank 1 is evicted, but not all shards"),
                    HasSubstr("shard 1 is frozen; the call may be repeated")));
  answers_.NotKept();
  EXPECT_EQ(answers_.size(), 0u);
}

TEST_F(KeptAnswersTest, AllAreRefusedAtTheEnd) {
  Add("a");
  answers_.Send();
  Add("b");
  answers_.Refuse(absl::UnavailableError("over")).Run();
  EXPECT_THAT(said_, ElementsAre("a: over", "b: over"));
}

}  // namespace
}  // namespace agg
