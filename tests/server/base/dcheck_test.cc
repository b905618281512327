// AGG_DCHECK where NDEBUG is not defined, whatever the build defines.
#include "gtest/gtest.h"

#undef NDEBUG
#include "server/base/dcheck.h"

namespace agg {
namespace {

TEST(DcheckDeathTest, SaysWhereAndWhat) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int sum = 2;
  EXPECT_DEATH(AGG_DCHECK(sum == 3),
               "dcheck_test.cc:[0-9]+: AGG_DCHECK.sum == 3. failed");
}

TEST(DcheckTest, EvaluatesATrueConditionOnce) {
  int calls = 0;
  AGG_DCHECK(++calls > 0);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace agg
