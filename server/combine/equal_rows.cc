#include "server/combine/equal_rows.h"

#include <utility>

namespace agg {
namespace {

// Of the squared distance beside the squared length.
constexpr double kNearlyEqual = 1e-5;

bool AreEqual(const GramMatrix& gram, int i, int j) {
  const double distance = (gram(i, i) - gram(i, j)) + (gram(j, j) - gram(i, j));
  return distance <= kNearlyEqual * gram(i, i);
}

}  // namespace

std::vector<std::vector<int>> EqualRows(const GramMatrix& gram) {
  const int num_rows = gram.num_rows();
  std::vector<std::vector<int>> groups;
  std::vector<bool> grouped(num_rows, false);
  for (int i = 0; i < num_rows; ++i) {
    if (grouped[i] || !(gram(i, i) > 0.0)) continue;
    std::vector<int> group = {i};
    for (int j = i + 1; j < num_rows; ++j) {
      if (grouped[j] || !AreEqual(gram, i, j)) continue;
      grouped[j] = true;
      group.push_back(j);
    }
    if (group.size() > 1) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace agg
