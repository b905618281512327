// Finds rows that are the same: workers that compute on the same data.
#ifndef AGG_SERVER_COMBINE_EQUAL_ROWS_H_
#define AGG_SERVER_COMBINE_EQUAL_ROWS_H_

#include <vector>

#include "server/combine/gram_matrix.h"

namespace agg {

// Groups of two rows or more, each within 0.3% of the length of its group's
// first row: ||g_i - g_j||^2 <= 1e-5 ||g_i||^2, by G alone
// (server/combine/README.md 7). Such rows are of one batch, computed twice
// (dropout off, or nothing but rounding apart): even batches of thousands of
// examples give gradients that are further apart. Ascending; rows of zeros are
// in none.
std::vector<std::vector<int>> EqualRows(const GramMatrix& gram);

}  // namespace agg

#endif  // AGG_SERVER_COMBINE_EQUAL_ROWS_H_
