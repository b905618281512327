// Files of golden values.
#ifndef AGG_TESTS_GOLDEN_GOLDEN_JSON_H_
#define AGG_TESTS_GOLDEN_GOLDEN_JSON_H_

#include <string>

#include "server/base/json.h"

namespace agg {

// The file's value. Ends the process with a message if there is no such file,
// or it is not JSON: a test has nothing to go on with.
Json ReadGolden(const std::string& path);

// A number that may also be one of the texts "Infinity", "-Infinity" and
// "NaN", for which JSON has no numbers. Throws for anything else.
double GoldenNumber(const Json& value);

}  // namespace agg

#endif  // AGG_TESTS_GOLDEN_GOLDEN_JSON_H_
