// Rows, their Gram matrices by literal dot products, and complete rounds, for
// tests of server/combine.
#ifndef AGG_TESTS_SERVER_COMBINE_TEST_ROWS_H_
#define AGG_TESTS_SERVER_COMBINE_TEST_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/combine/decision.h"
#include "server/combine/gram_matrix.h"
#include "server/combine/options.h"
#include "tests/reference/row_statistics.h"

namespace agg {

using Rows = reference::Rows;

// Dot products one element after the other, in double; and in __float128,
// split into hi + lo.
GramMatrix MakeGram(const Rows& rows);
GramMatrix MakeCompensatedGram(const Rows& rows);

// The portable generator of tests/golden/README.md.
Rows LcgRows(uint32_t seed, int num_rows, int num_elements);
Rows BiasedLcgRows(uint32_t seed, int num_rows, int num_elements, double bias);

// Normally distributed rows.
Rows NormalRows(uint64_t seed, int num_rows, int num_elements);

// Tensors' rows as a round: ranks 0..P-1, plain Grams.
RoundInput MakeRound(const std::vector<Rows>& tensors, int64_t version = 0);

// Valid options with a learning rate of 1, the rule of this name and its
// default scope.
CombineOptions MakeOptions(const std::string& rule);

// Decide, and again with compensated Grams where it asks for them.
Decision DecideRows(const CombineOptions& options, const CombineState& state,
                    const std::vector<Rows>& tensors);

// sum_i |weights_i| ||g_i||: errors are to be small beside this, not beside the
// result, which may cancel.
double BackwardScale(const Rows& rows, const std::vector<double>& weights);

}  // namespace agg

#endif  // AGG_TESTS_SERVER_COMBINE_TEST_ROWS_H_
