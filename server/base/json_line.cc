#include "server/base/json_line.h"

#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace agg {
namespace {

std::string Number(double value) {
  if (!std::isfinite(value)) return "null";
  char buffer[32];
  const std::to_chars_result end =
      std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end.ptr);
}

std::string List(absl::Span<const double> values) {
  return absl::StrCat("[",
                      absl::StrJoin(values, ", ",
                                    [](std::string* out, double value) {
                                      absl::StrAppend(out, Number(value));
                                    }),
                      "]");
}

std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted.push_back('\\');
      quoted.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      quoted.push_back(c);
    }
  }
  quoted.push_back('"');
  return quoted;
}

}  // namespace

void JsonLine::Add(absl::string_view name, double value) {
  AddRaw(name, Number(value));
}

void JsonLine::Add(absl::string_view name, int value) {
  AddRaw(name, absl::StrCat(value));
}

void JsonLine::AddBool(absl::string_view name, bool value) {
  AddRaw(name, value ? "true" : "false");
}

void JsonLine::AddString(absl::string_view name, absl::string_view value) {
  AddRaw(name, Quoted(value));
}

void JsonLine::AddNull(absl::string_view name) { AddRaw(name, "null"); }

void JsonLine::AddList(absl::string_view name,
                       absl::Span<const double> values) {
  AddRaw(name, List(values));
}

void JsonLine::AddMatrix(absl::string_view name,
                         const std::vector<std::vector<double>>& rows) {
  AddRaw(name, absl::StrCat("[",
                            absl::StrJoin(rows, ", ",
                                          [](std::string* out,
                                             const std::vector<double>& row) {
                                            absl::StrAppend(out, List(row));
                                          }),
                            "]"));
}

std::string JsonLine::Finish() const {
  return absl::StrCat("{", members_, "}");
}

void JsonLine::AddRaw(absl::string_view name, absl::string_view value) {
  absl::StrAppend(&members_, members_.empty() ? "" : ", ", Quoted(name), ": ",
                  value);
}

}  // namespace agg
