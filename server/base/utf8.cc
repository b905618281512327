// The one UTF-8 decoder of the project: it only tells where sequences end.
#include "server/base/utf8.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace agg {

size_t Utf8SequenceBytes(absl::string_view text) {
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

}  // namespace agg
