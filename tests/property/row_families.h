// Families of gradient rows on which computing with Gram matrices may go wrong
// (server/combine/README.md 10.2): parallel, cancelling, of extreme lengths,
// with zeros.
#ifndef AGG_TESTS_PROPERTY_ROW_FAMILIES_H_
#define AGG_TESTS_PROPERTY_ROW_FAMILIES_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/reference/row_statistics.h"

namespace agg {

struct RowFamily {
  std::string name;
  // Turns normally distributed rows into the family's.
  std::function<void(uint64_t seed, std::mt19937_64*, reference::Rows*)> shape;
};

const std::vector<RowFamily>& RowFamilies();

// Equal arguments give equal rows; their values are floats.
reference::Rows FamilyRows(const RowFamily& family, int num_rows,
                           int num_elements);

// Rounds to floats; multiplies a row.
void RoundRows(reference::Rows* rows);
void ScaleRow(double scale, std::vector<double>* row);

}  // namespace agg

#endif  // AGG_TESTS_PROPERTY_ROW_FAMILIES_H_
