// A check of the form alone: version, ids and flags in hexadecimal, and ids
// that are not all zeros.
#include "proto/traceparent.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace agg {
namespace {

constexpr size_t kLength = 55;  // of version 00
constexpr size_t kMaxLength = 128;

bool IsHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

bool IsId(absl::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != absl::string_view::npos;
}

}  // namespace

bool IsTraceparent(absl::string_view value) {
  if (value.size() < kLength || value.size() > kMaxLength) return false;
  const absl::string_view version = value.substr(0, 2);
  if (!IsHex(version) || version == "ff") return false;
  if (value[2] != '-' || value[35] != '-' || value[52] != '-') return false;
  if (!IsId(value.substr(3, 32)) || !IsId(value.substr(36, 16)) ||
      !IsHex(value.substr(53, 2))) {
    return false;
  }
  if (value.size() == kLength) return true;
  return version != "00" && value[kLength] == '-' &&
         std::all_of(value.begin(), value.end(), [](char c) {
           return absl::ascii_isgraph(static_cast<unsigned char>(c));
         });
}

}  // namespace agg
