// The rules that nlohmann/json does not have, apart from those who build
// values: how numbers are rounded, and what is escaped.
#include "server/base/json.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "server/base/utf8.h"

namespace agg {
namespace {

constexpr int kCompact = -1;  // indentation: everything on one line
constexpr int kNoIndent = 0;  // an element per line, not indented

std::string Dump(const Json& value, int indent) {
  // What could change how a terminal or a page shows the rest is escaped.
  return ShownInJson(value.dump(indent, ' ', /*ensure_ascii=*/false,
                                Json::error_handler_t::replace));
}

}  // namespace

Json ExactNumber(double value) {
  constexpr double kLargestExactInteger = 0x1p53;
  if (!std::isfinite(value)) return nullptr;
  // As integers, since the library writes the double 3 as 3.0. Not -0, whose
  // sign an integer would lose.
  if (std::trunc(value) == value && std::abs(value) < kLargestExactInteger &&
      !(value == 0.0 && std::signbit(value))) {
    return static_cast<int64_t>(value);
  }
  return value;
}

Json RoundedNumber(double value) {
  if (!std::isfinite(value)) return nullptr;
  // absl::StrCat writes six significant digits. The double next to them has no
  // shorter form, so that the library writes the same digits again.
  double rounded = value;
  if (!absl::SimpleAtod(absl::StrCat(value), &rounded)) return nullptr;
  return ExactNumber(rounded);
}

Json ExactNumbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(ExactNumber(value));
  return list;
}

Json RoundedNumbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(RoundedNumber(value));
  return list;
}

std::string CompactJson(const Json& value) {
  // Outside of strings JSON has none of these characters, and inside any
  // character may be written as its escape.
  return absl::StrReplaceAll(
      Dump(value, kCompact),
      {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

std::string JsonLine(const Json& value) {
  // Newlines inside strings are escaped: the ones that are left are layout.
  return absl::StrReplaceAll(Dump(value, kNoIndent),
                             {{",\n", ", "}, {"\n", ""}});
}

}  // namespace agg
