// Well-formed UTF-8, where names and texts come from other processes.
#ifndef AGG_SERVER_BASE_UTF8_H_
#define AGG_SERVER_BASE_UTF8_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace agg {

// Bytes of the well-formed sequence at the start of `text` (The Unicode
// Standard, table 3-7), 1 to 4; 0 if `text` does not start with one: a stray
// byte, an overlong form, a surrogate, a code point above U+10FFFF, a sequence
// that is cut short. REQUIRES: `text` is not empty.
size_t Utf8SequenceBytes(absl::string_view text);

// `value` with every byte that is not part of well-formed UTF-8 replaced by
// U+FFFD. One bad byte in a label value would make Prometheus refuse the
// complete scrape.
std::string ValidUtf8(absl::string_view value);

}  // namespace agg

#endif  // AGG_SERVER_BASE_UTF8_H_
