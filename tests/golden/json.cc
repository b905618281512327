#include "tests/golden/json.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace agg {
namespace {

[[noreturn]] void Fail(absl::string_view message) {
  std::fprintf(stderr, "json: %.*s\n", static_cast<int>(message.size()),
               message.data());
  std::abort();
}

}  // namespace

// Recursive descent; `ok_` turns false at the first error.
class JsonParser {
 public:
  explicit JsonParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<Json> ParseDocument() {
    Json value = ParseValue();
    SkipSpace();
    if (!ok_ || !text_.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("not JSON at: ", text_.substr(0, 20)));
    }
    return value;
  }

 private:
  void SkipSpace() { text_ = absl::StripLeadingAsciiWhitespace(text_); }

  bool Take(absl::string_view token) {
    SkipSpace();
    if (!absl::StartsWith(text_, token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }

  Json ParseValue() {
    Json value;
    if (Take("{")) {
      ParseMembers(&value);
    } else if (Take("[")) {
      ParseArray(&value);
    } else if (Take("\"")) {
      value.kind_ = Json::Kind::kString;
      value.string_ = ParseString();
    } else if (Take("true")) {
      value.kind_ = Json::Kind::kBool;
      value.boolean_ = true;
    } else if (Take("false")) {
      value.kind_ = Json::Kind::kBool;
    } else if (!Take("null")) {
      value.kind_ = Json::Kind::kNumber;
      value.number_ = ParseNumber();
    }
    return value;
  }

  void ParseMembers(Json* value) {
    value->kind_ = Json::Kind::kObject;
    if (Take("}")) return;
    do {
      if (!Take("\"")) ok_ = false;
      std::string name = ParseString();
      if (!Take(":")) ok_ = false;
      if (!ok_) return;
      value->members_.emplace_back(std::move(name), ParseValue());
    } while (ok_ && Take(","));
    if (!Take("}")) ok_ = false;
  }

  void ParseArray(Json* value) {
    value->kind_ = Json::Kind::kArray;
    if (Take("]")) return;
    do {
      value->array_.push_back(ParseValue());
    } while (ok_ && Take(","));
    if (!Take("]")) ok_ = false;
  }

  std::string ParseString() {
    std::string result;
    while (!text_.empty() && text_[0] != '"') {
      if (text_[0] == '\\') text_.remove_prefix(1);
      if (text_.empty()) break;
      result.push_back(text_[0]);
      text_.remove_prefix(1);
    }
    if (!Take("\"")) ok_ = false;
    return result;
  }

  double ParseNumber() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (Take("NaN")) return std::numeric_limits<double>::quiet_NaN();
    if (Take("Infinity")) return kInfinity;
    if (Take("-Infinity")) return -kInfinity;
    const size_t length =
        std::min(text_.find_first_not_of("+-0123456789.eE"), text_.size());
    double value = 0.0;
    if (!absl::SimpleAtod(text_.substr(0, length), &value)) ok_ = false;
    text_.remove_prefix(length);
    return value;
  }

  absl::string_view text_;
  bool ok_ = true;
};

absl::StatusOr<Json> Json::Parse(absl::string_view text) {
  return JsonParser(text).ParseDocument();
}

Json Json::FromFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) Fail(absl::StrCat("cannot read ", path));
  std::stringstream text;
  text << file.rdbuf();
  absl::StatusOr<Json> value = Parse(text.str());
  if (!value.ok()) Fail(absl::StrCat(path, ": ", value.status().message()));
  return *std::move(value);
}

bool Json::boolean() const {
  if (kind_ != Kind::kBool) Fail("not a boolean");
  return boolean_;
}

double Json::number() const {
  if (kind_ != Kind::kNumber) Fail("not a number");
  return number_;
}

const std::string& Json::string() const {
  if (kind_ != Kind::kString) Fail("not a string");
  return string_;
}

const std::vector<Json>& Json::array() const {
  if (kind_ != Kind::kArray) Fail("not an array");
  return array_;
}

const std::vector<std::pair<std::string, Json>>& Json::members() const {
  if (kind_ != Kind::kObject) Fail("not an object");
  return members_;
}

bool Json::Has(absl::string_view name) const {
  for (const auto& member : members()) {
    if (member.first == name) return true;
  }
  return false;
}

const Json& Json::operator[](absl::string_view name) const {
  for (const auto& member : members()) {
    if (member.first == name) return member.second;
  }
  Fail(absl::StrCat("no member ", name));
}

const Json& Json::operator[](int index) const {
  if (index < 0 || index >= static_cast<int>(array().size())) {
    Fail(absl::StrCat("no element ", index));
  }
  return array_[index];
}

std::vector<double> Json::numbers() const {
  std::vector<double> result;
  for (const Json& element : array()) result.push_back(element.number());
  return result;
}

std::vector<std::vector<double>> Json::matrix() const {
  std::vector<std::vector<double>> result;
  for (const Json& row : array()) result.push_back(row.numbers());
  return result;
}

}  // namespace agg
