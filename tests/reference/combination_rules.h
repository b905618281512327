// The transcription of every combination rule, by name. A rule of the server's
// table without one here fails tests/server/combine/combination_rule_test.
#ifndef AGG_TESTS_REFERENCE_COMBINATION_RULES_H_
#define AGG_TESTS_REFERENCE_COMBINATION_RULES_H_

#include <string>
#include <vector>

#include "tests/reference/vectors.h"

namespace agg {
namespace reference {

// The combination of the rows in a rule's first round, with the rule's default
// options: as its definition says, on full vectors. `examples` has one number
// per row. REQUIRES: rows not empty.
using CombineVectors = Vector (*)(const Rows& rows,
                                  const std::vector<double>& examples);

// Null for a rule that is not transcribed.
CombineVectors FindTranscription(const std::string& rule);

}  // namespace reference
}  // namespace agg

#endif  // AGG_TESTS_REFERENCE_COMBINATION_RULES_H_
