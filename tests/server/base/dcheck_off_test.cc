// AGG_DCHECK where NDEBUG is defined, whatever the build defines.
#include "gtest/gtest.h"

#ifndef NDEBUG
#define NDEBUG
#endif
#include "server/base/dcheck.h"

namespace agg {
namespace {

TEST(DcheckOffTest, EvaluatesNothing) {
  int calls = 0;
  AGG_DCHECK(++calls > 0);
  AGG_DCHECK(++calls > 9);
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace agg
