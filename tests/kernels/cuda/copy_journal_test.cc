#include "kernels/cuda/copy_journal.h"

#include "gtest/gtest.h"

namespace agg::cuda {
namespace {

TEST(CopyJournalTest, KnowsTheLastCopyOfEachByte) {
  CopyJournal journal;
  EXPECT_EQ(journal.LastCopyOf({0, 1000}), 0);
  journal.Add({0, 100}, 1);
  journal.Add({100, 300}, 4);
  journal.Add({600, 700}, 5);
  EXPECT_EQ(journal.LastCopyOf({0, 100}), 1);
  EXPECT_EQ(journal.LastCopyOf({99, 101}), 4);
  EXPECT_EQ(journal.LastCopyOf({300, 600}), 0);
  EXPECT_EQ(journal.LastCopyOf({0, 1000}), 5);
  EXPECT_EQ(journal.LastCopyOf({699, 700}), 5);
  journal.Add({50, 150}, 9);  // again
  EXPECT_EQ(journal.LastCopyOf({0, 100}), 9);
  EXPECT_EQ(journal.LastCopyOf({0, 50}), 1);
  EXPECT_EQ(journal.LastCopyOf({150, 300}), 4);
}

TEST(CopyJournalTest, ForgetsWhatHasBeenWaitedFor) {
  CopyJournal journal;
  journal.Add({0, 100}, 1);
  journal.Add({100, 200}, 2);
  journal.Add({200, 300}, 3);
  journal.ForgetUpTo(2);
  EXPECT_EQ(journal.LastCopyOf({0, 200}), 0);
  EXPECT_EQ(journal.LastCopyOf({0, 300}), 3);
  journal.ForgetUpTo(7);
  EXPECT_EQ(journal.LastCopyOf({0, 300}), 0);
}

}  // namespace
}  // namespace agg::cuda
