// The one UTF-8 decoder of the project: it only tells where sequences end.
#include "server/base/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "server/base/dcheck.h"

namespace agg {

size_t Utf8SequenceBytes(absl::string_view text) {
  AGG_DCHECK(!text.empty());
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  // Range of the second byte: narrower where overlong forms, surrogates and
  // code points above U+10FFFF begin.
  uint8_t low = 0x80, high = 0xBF;
  size_t num_bytes = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    num_bytes = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    num_bytes = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    num_bytes = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  if (num_bytes == 0 || text.size() < num_bytes) return 0;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < num_bytes; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return num_bytes;
}

std::string ValidUtf8(absl::string_view value) {
  std::string valid;
  while (!value.empty()) {
    const size_t num_bytes = Utf8SequenceBytes(value);
    if (num_bytes == 0) {
      valid += "\xEF\xBF\xBD";
      value.remove_prefix(1);
    } else {
      valid.append(value.data(), num_bytes);
      value.remove_prefix(num_bytes);
    }
  }
  return valid;
}

namespace {

struct Range {
  uint32_t first, last;
};

// The Unicode Standard's general categories Cc and Cf, Zl and Zp, with the
// characters of no shape that other categories have (U+034F, U+115F, U+1160,
// U+17B4, U+17B5, U+3164, U+FFA0, variation selectors), and noncharacters.
constexpr Range kNotShown[] = {
    {0x0000, 0x001f},   {0x007f, 0x009f},   {0x00ad, 0x00ad},
    {0x034f, 0x034f},   {0x0600, 0x0605},   {0x061c, 0x061c},
    {0x06dd, 0x06dd},   {0x070f, 0x070f},   {0x0890, 0x0891},
    {0x08e2, 0x08e2},   {0x115f, 0x1160},   {0x17b4, 0x17b5},
    {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f},   {0x3164, 0x3164},   {0xfdd0, 0xfdef},
    {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
    {0xfff0, 0xfffb},   {0xfffe, 0xffff},   {0x110bd, 0x110bd},
    {0x110cd, 0x110cd}, {0x13430, 0x1343f}, {0x1bca0, 0x1bca3},
    {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}, {0x10fffe, 0x10ffff},
};

// Of a well-formed sequence.
uint32_t CodePoint(absl::string_view sequence) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(sequence[i]));
  };
  constexpr uint32_t kLead[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
  uint32_t point = byte(0) & kLead[sequence.size()];
  for (size_t i = 1; i < sequence.size(); ++i) {
    point = point << 6 | (byte(i) & 0x3f);
  }
  return point;
}

bool IsShown(uint32_t point) {
  for (const Range& range : kNotShown) {
    if (point <= range.last) return point < range.first;
  }
  return true;
}

}  // namespace

std::string Shown(absl::string_view text, bool keep_lines) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8SequenceBytes(text);
    const absl::string_view sequence = text.substr(0, length == 0 ? 1 : length);
    text.remove_prefix(sequence.size());
    const uint32_t point = length == 0 ? 0 : CodePoint(sequence);
    if (point == '\n') {
      shown += keep_lines ? "\n" : "\\n";
    } else if (length != 0 && IsShown(point)) {
      shown.append(sequence.data(), sequence.size());
    } else if (sequence.size() == 1) {
      absl::StrAppendFormat(&shown, "\\x%02x",
                            static_cast<uint8_t>(sequence[0]));
    } else if (point <= 0xffff) {
      absl::StrAppendFormat(&shown, "\\u%04x", point);
    } else {
      absl::StrAppendFormat(&shown, "\\U%08x", point);
    }
  }
  return shown;
}

std::string ShownInJson(absl::string_view json) {
  AGG_DCHECK(ValidUtf8(json) == json);
  std::string shown;
  shown.reserve(json.size());
  while (!json.empty()) {
    const size_t length = std::max<size_t>(1, Utf8SequenceBytes(json));
    const absl::string_view sequence = json.substr(0, length);
    json.remove_prefix(length);
    const uint32_t point = CodePoint(sequence);
    if (point < 0x20 || IsShown(point)) {
      shown.append(sequence.data(), sequence.size());
    } else if (point <= 0xffff) {
      absl::StrAppendFormat(&shown, "\\u%04x", point);
    } else {
      absl::StrAppendFormat(&shown, "\\u%04x\\u%04x",
                            0xd800 + ((point - 0x10000) >> 10),
                            0xdc00 + ((point - 0x10000) & 0x3ff));
    }
  }
  return shown;
}

}  // namespace agg
