// JSON as our programs write it: nlohmann/json, and the few rules that all
// outputs share.
#ifndef AGG_SERVER_BASE_JSON_H_
#define AGG_SERVER_BASE_JSON_H_

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"

// Headers include this one (or json_fwd.hpp); only sources that build or read
// values include nlohmann/json.hpp, which takes seconds to compile.

namespace agg {

// Members keep the order in which they were added.
using Json = nlohmann::ordered_json;

// Numbers. Both write integers without a fraction (3, not 3.0), and null
// for NaN and infinities, which JSON does not have.
//
// The fewest digits that read back as the same double.
Json ExactNumber(double value);
// Six significant digits: enough for pictures, and much shorter.
Json RoundedNumber(double value);

// Each element of a list likewise.
Json ExactNumbers(const std::vector<double>& values);
Json RoundedNumbers(const std::vector<double>& values);

// Texts. Both are well-formed UTF-8: bytes of strings that are not become
// U+FFFD. Control characters and others that are not shown (utf8.h) are
// escaped.
//
// Without spaces, and safe inside a <script> element: <, > and & are escaped.
std::string CompactJson(const Json& value);
// One line, with a space after each comma and colon, for people and logs. No
// newline at the end.
std::string JsonLine(const Json& value);

}  // namespace agg

#endif  // AGG_SERVER_BASE_JSON_H_
