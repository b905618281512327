// The rules that nlohmann/json does not have, apart from those who build
// values: how numbers are rounded, what is escaped, and which types and ranges
// a member may have.
#include "server/base/json.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "server/base/dcheck.h"
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

namespace {

constexpr absl::string_view kNan = "NaN";
constexpr absl::string_view kInfinity = "Infinity";
constexpr absl::string_view kMinusInfinity = "-Infinity";
constexpr absl::string_view kNumberAllowed =
    "a number, \"NaN\", \"Infinity\" or \"-Infinity\"";

bool ReadNumber(const Json& value, double* number) {
  if (value.is_number()) {
    *number = value.get<double>();
    return true;
  }
  if (!value.is_string()) return false;
  const auto text = value.get<std::string>();
  if (text == kNan) *number = std::numeric_limits<double>::quiet_NaN();
  if (text == kInfinity) *number = std::numeric_limits<double>::infinity();
  if (text == kMinusInfinity) {
    *number = -std::numeric_limits<double>::infinity();
  }
  return text == kNan || text == kInfinity || text == kMinusInfinity;
}

// Whether it is an integer from 0 to `most`.
bool ReadInteger(const Json& value, uint64_t most, uint64_t* number) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > most) return false;
  *number = value.get<uint64_t>();
  return true;
}

std::string Integers(uint64_t most) {
  return absl::StrCat("an integer from 0 to ", most);
}

}  // namespace

Json LosslessNumber(double value) {
  if (std::isnan(value)) return std::string(kNan);
  if (std::isinf(value)) {
    return std::string(value > 0.0 ? kInfinity : kMinusInfinity);
  }
  return value;
}

Json LosslessNumbers(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(LosslessNumber(value));
  return list;
}

const Json* JsonMembers::Find(const char* name,
                              absl::string_view allowed) const {
  const auto found = object_.find(name);
  if (found != object_.end()) return &*found;
  Add(name, "missing", allowed);
  return nullptr;
}

void JsonMembers::Add(const char* name, absl::string_view value,
                      absl::string_view allowed) const {
  errors_->Add(FieldError(path_ + name, value, allowed));
}

void JsonMembers::AddJson(const char* name, const Json& value,
                          absl::string_view allowed) const {
  constexpr size_t kMostShown = 60;
  Add(name, JsonLine(value).substr(0, kMostShown), allowed);
}

JsonMembers::JsonMembers(const Json& object, std::string path,
                         FieldErrors* errors)
    : object_(object), path_(std::move(path)), errors_(errors) {
  AGG_DCHECK(object.is_object());
}

bool JsonMembers::Has(const char* name) const { return object_.contains(name); }

void JsonMembers::Take(const char* name, std::string* text) const {
  const Json* const value = Find(name, "a text");
  if (value == nullptr) return;
  if (!value->is_string()) return AddJson(name, *value, "a text");
  *text = value->get<std::string>();
}

void JsonMembers::Take(const char* name, bool* truth) const {
  const Json* const value = Find(name, "true or false");
  if (value == nullptr) return;
  if (!value->is_boolean()) return AddJson(name, *value, "true or false");
  *truth = value->get<bool>();
}

void JsonMembers::Take(const char* name, double* number) const {
  const Json* const value = Find(name, kNumberAllowed);
  if (value == nullptr || ReadNumber(*value, number)) return;
  AddJson(name, *value, kNumberAllowed);
}

void JsonMembers::Take(const char* name, std::vector<double>* numbers) const {
  const std::string allowed = absl::StrCat("a list; each ", kNumberAllowed);
  const Json* const list = Find(name, allowed);
  if (list == nullptr) return;
  if (!list->is_array()) return AddJson(name, *list, allowed);
  std::vector<double> read;
  for (const Json& value : *list) {
    read.push_back(0.0);
    if (!ReadNumber(value, &read.back())) {
      return AddJson(name, value, allowed);
    }
  }
  *numbers = std::move(read);
}

void JsonMembers::TakeBytes(const char* name, std::string* bytes) const {
  std::string text;
  Take(name, &text);
  std::string read;
  if (!absl::Base64Unescape(text, &read)) {
    return Add(name, Quoted(text.substr(0, 20)), "base64");
  }
  *bytes = std::move(read);
}

bool JsonMembers::TakeUpTo(const char* name, uint64_t most,
                           uint64_t* number) const {
  const Json* const value = Find(name, Integers(most));
  if (value == nullptr) return false;
  if (ReadInteger(*value, most, number)) return true;
  AddJson(name, *value, Integers(most));
  return false;
}

bool JsonMembers::TakeUpTo(const char* name, uint64_t most,
                           std::vector<uint64_t>* numbers) const {
  const std::string allowed = absl::StrCat("a list; each ", Integers(most));
  const Json* const list = Find(name, allowed);
  if (list == nullptr) return false;
  bool good = list->is_array();
  for (size_t i = 0; good && i < list->size(); ++i) {
    numbers->push_back(0);
    good = ReadInteger((*list)[i], most, &numbers->back());
  }
  if (!good) AddJson(name, *list, allowed);
  return good;
}

void JsonMembers::TakeObject(const char* name, const Read& read) const {
  const Json* const value = Find(name, "an object");
  if (value == nullptr) return;
  if (!value->is_object()) return AddJson(name, *value, "an object");
  read(JsonMembers(*value, absl::StrCat(path_, name, "."), errors_));
}

void JsonMembers::TakeList(const char* name, const Read& read) const {
  const Json* const list = Find(name, "a list of objects");
  if (list == nullptr) return;
  if (!list->is_array()) return AddJson(name, *list, "a list of objects");
  for (size_t i = 0; i < list->size() && errors_->empty(); ++i) {
    const std::string path = absl::StrCat(path_, name, "[", i, "]");
    const Json& object = (*list)[i];
    if (!object.is_object()) {
      errors_->Add(FieldError(path, JsonLine(object), "an object"));
      return;
    }
    read(JsonMembers(object, path + ".", errors_));
  }
}

}  // namespace agg
