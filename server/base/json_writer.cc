#include "server/base/json_writer.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "server/base/utf8.h"

namespace agg {

void JsonWriter::Separate() {
  if (comma_) text_.push_back(',');
  comma_ = true;
}

JsonWriter& JsonWriter::BeginObject() {
  Separate();
  text_.push_back('{');
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::EndObject() {
  text_.push_back('}');
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::BeginArray() {
  Separate();
  text_.push_back('[');
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::EndArray() {
  text_.push_back(']');
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Key(absl::string_view name) {
  Separate();
  absl::StrAppend(&text_, "\"", name, "\":");
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::String(absl::string_view value) {
  Separate();
  text_.push_back('"');
  for (const char c : ValidUtf8(value)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text_.push_back('\\');
      text_.push_back(c);
    } else if (byte < 0x20 || byte == 0x7f || c == '<' || c == '>' ||
               c == '&') {
      absl::StrAppendFormat(&text_, "\\u%04x", byte);
    } else {
      text_.push_back(c);
    }
  }
  text_.push_back('"');
  return *this;
}

JsonWriter& JsonWriter::Bool(bool value) {
  return Raw(value ? "true" : "false");
}

JsonWriter& JsonWriter::Null() { return Raw("null"); }

JsonWriter& JsonWriter::Integer(int64_t value) {
  return Raw(absl::StrCat(value));
}

JsonWriter& JsonWriter::Number(double value) {
  if (!std::isfinite(value)) return Null();
  return Raw(absl::StrCat(value));  // six digits
}

JsonWriter& JsonWriter::Numbers(const std::vector<double>& values) {
  BeginArray();
  for (const double value : values) Number(value);
  return EndArray();
}

JsonWriter& JsonWriter::Raw(absl::string_view json) {
  Separate();
  absl::StrAppend(&text_, json);
  return *this;
}

std::string JsonWriter::Take() {
  comma_ = false;
  return std::exchange(text_, std::string());
}

}  // namespace agg
