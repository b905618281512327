// Who has the same parameters, and whom that names.
#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/coordinator/round_watches.h"

namespace agg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Rank and digest of each row.
ReplicaGroups Of(const std::vector<std::pair<int32_t, uint32_t>>& rows) {
  RoundReport report;
  for (const auto& row : rows) {
    report.rows.emplace_back();
    report.rows.back().rank = row.first;
    report.parameters_digests.push_back(row.second);
  }
  return GroupReplicas(report);
}

TEST(ReplicaGroupsTest, EqualOnesNameNobody) {
  for (const ReplicaGroups& replicas :
       {Of({}), Of({{0, 7}}), Of({{0, 7}, {1, 7}, {2, 7}}),
        GroupReplicas(RoundReport())}) {
    EXPECT_FALSE(replicas.differ());
    EXPECT_THAT(replicas.differing, IsEmpty());
    EXPECT_EQ(replicas.Text(), "");
  }
}

TEST(ReplicaGroupsTest, WhoSaysNothingIsNotCompared) {
  EXPECT_FALSE(Of({{0, 7}, {1, 0}, {2, 7}}).differ());
  EXPECT_FALSE(Of({{0, 0}, {1, 0}, {2, 7}}).differ());
  EXPECT_THAT(Of({{0, 7}, {1, 0}, {2, 8}, {3, 8}}).differing, ElementsAre(0));
}

TEST(ReplicaGroupsTest, TheMostAreRight) {
  const ReplicaGroups replicas =
      Of({{0, 9}, {1, 7}, {2, 7}, {3, 8}, {5, 7}, {6, 9}, {8, 7}});
  EXPECT_THAT(replicas.groups, ElementsAre(ElementsAre(1, 2, 5, 8),
                                           ElementsAre(0, 6), ElementsAre(3)));
  EXPECT_THAT(replicas.differing, ElementsAre(0, 3, 6));
  EXPECT_THAT(replicas.Text(),
              HasSubstr("differ: ranks 0, 3, 6 from those of ranks 1, 2, 5, 8; "
                        "load the same checkpoint"));
}

TEST(ReplicaGroupsTest, HalfIsNoMajority) {
  const ReplicaGroups replicas = Of({{0, 9}, {1, 7}, {2, 9}, {3, 7}});
  EXPECT_THAT(replicas.differing, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(replicas.Text(),
              HasSubstr("differ: ranks 0, 2 from those of ranks 1, 3 (no "
                        "majority says who is right)"));
  const ReplicaGroups three = Of({{0, 3}, {1, 2}, {2, 1}});
  EXPECT_THAT(
      three.Text(),
      HasSubstr("rank 0 from those of rank 1 from those of rank 2 (no"));
  EXPECT_THAT(Of({{0, 9}, {1, 9}, {2, 8}, {3, 7}}).differing,
              ElementsAre(0, 1, 2, 3));
}

TEST(ReplicaGroupsTest, ManyAreCounted) {
  std::vector<std::pair<int32_t, uint32_t>> rows;
  for (int32_t rank = 0; rank < 100; ++rank) {
    rows.push_back({rank, rank < 30 ? 1000u + static_cast<uint32_t>(rank) : 5});
  }
  const ReplicaGroups replicas = Of(rows);
  EXPECT_EQ(replicas.differing.size(), 30u);
  EXPECT_THAT(replicas.Text(), HasSubstr("ranks 0, 1, 2"));
  EXPECT_THAT(replicas.Text(),
              HasSubstr("14, 15 and 14 more from those of ranks 30,"));
  for (auto& row : rows) row.second = 1 + static_cast<uint32_t>(row.first);
  EXPECT_THAT(Of(rows).Text(), HasSubstr("rank 7, and 92 more groups"));
}

}  // namespace
}  // namespace agg
